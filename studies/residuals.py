"""Whether a law with a slow part describes what predictions miss: its fit beside simpler laws.

Residuals are logarithms of measured over predicted wall time of ``results/worth/jobs.json``, for
new subjects on new days. Each law is fitted to four fifths of the subjects and judged by the mean
logarithm of its density at the runs of the others. Writes ``results/worth/residuals.json``.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.model_selection import GroupKFold

from voxcast.errors import exits_cleanly
from voxcast.files import read_json, write_json

FOLDER = Path("results/worth")
FOLDS, SEED, ROUNDS = 5, 0, 200
SLOW = 1.5  # times the prediction
LEAST_SHARE, LEAST_SD = 0.005, 0.02

LogDensity = Callable[[np.ndarray], np.ndarray]


@exits_cleanly
def main() -> int:
    """Write the fits of all laws, by application."""
    jobs = pd.DataFrame(read_json(FOLDER / "jobs.json")["jobs"])
    result: dict[str, Any] = {}
    for app, runs in jobs.groupby("app"):
        residuals = np.log((runs["runtime_s"] / runs["runtime_s_median"]).to_numpy(dtype=float))
        densities: dict[str, list[float]] = {name: [] for name in LAWS}
        folds = GroupKFold(FOLDS, shuffle=True, random_state=SEED)
        for train, test in folds.split(residuals, groups=runs["subject"]):
            for name, fitted in LAWS.items():
                densities[name] += fitted(residuals[train])(residuals[test]).tolist()
        share, centre, sd, slow_centre, slow_sd = two_parts(residuals)
        result[str(app)] = {
            "runs": len(runs),
            "log_density": {name: float(np.mean(values)) for name, values in densities.items()},
            "slow": {"share": share, "factor": math.exp(slow_centre - centre), "sd": slow_sd},
            "usual_sd": sd,
            "share_above": {str(SLOW): float((residuals > math.log(SLOW)).mean())},
        }
    write_json(FOLDER / "residuals.json", result)
    return 0


def two_parts(values: np.ndarray) -> tuple[float, float, float, float, float]:
    """Fit two normal laws by expectation maximisation.

    Returns
    -------
    share, centre, sd, slow_centre, slow_sd : float
        Share of the slow part, and both laws.
    """
    share, centre, sd = 0.05, float(np.median(values)), 0.6 * float(values.std())
    slow_centre, slow_sd = float(np.quantile(values, 0.97)), float(values.std())
    for _ in range(ROUNDS):
        usual = (1 - share) * stats.norm.pdf(values, centre, sd)
        slow = share * stats.norm.pdf(values, slow_centre, slow_sd)
        weights = slow / (usual + slow)
        share = max(float(weights.mean()), LEAST_SHARE)
        centre, sd = _moments(values, 1 - weights)
        slow_centre, slow_sd = _moments(values, weights)
    return share, centre, sd, slow_centre, slow_sd


def _moments(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    centre = float(np.average(values, weights=weights))
    variance = float(np.average((values - centre) ** 2, weights=weights))
    return centre, max(math.sqrt(variance), LEAST_SD)


def _two_parts_law(values: np.ndarray) -> LogDensity:
    share, centre, sd, slow_centre, slow_sd = two_parts(values)
    return lambda x: np.log(
        (1 - share) * stats.norm.pdf(x, centre, sd)
        + share * stats.norm.pdf(x, slow_centre, slow_sd)
    )


def _student(values: np.ndarray) -> LogDensity:
    law = stats.t(*stats.t.fit(values))
    return lambda x: np.asarray(law.logpdf(x))


LAWS: dict[str, Callable[[np.ndarray], LogDensity]] = {
    "normal": lambda values: stats.norm(values.mean(), values.std()).logpdf,
    "student": _student,
    "two_parts": _two_parts_law,
}


if __name__ == "__main__":
    sys.exit(main())
