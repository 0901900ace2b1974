"""Recorded runs as a user meets them: predicted for a new subject on a new day.

Writes ``results/worth/jobs.json``, from which `benchmarks/worth_requests.py` draws sets of jobs.
Models, their choice and their calibration see no run of the subject or of the day. How fast the
machine is on that day is told by two runs of other subjects, and by a reading of the kernels where
there is one. The same runs to learn from are what the rules of a laboratory know. Each subject is
of one half of the jobs, one to choose margins by, the other to confirm them.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fold_predictions import voxcast_predictions
from study import FOLDS, table_to_learn_from
from voxcast.errors import exits_cleanly
from voxcast.evaluation.contenders import SIZE, UPPER
from voxcast.evaluation.protocols import days_of, draws, folds
from voxcast.evaluation.recorded_table import of_app
from voxcast.features.rows import FULL, side
from voxcast.files import write_json
from voxcast.models.selection.cross_validation import FoldCache

OUT = Path("results/worth/jobs.json")
APPS = ("ants_segment", "ants_register", "tile_segment")
FAMILIES = ("ridge", "extra_trees")
TRIALS, SUBJECT_FOLDS, LOCAL_RUNS, SEED = 3, 3, 2, 0
HALVES = ("choose", "confirm")
TARGETS = ("runtime_s", "peak_rss_bytes")
RULES = ("largest", "percentile", "first", "line")
PERCENTILE, DEVIATIONS = 0.95, 2.0


@exits_cleanly
def main() -> int:
    """Predict the runs of each application."""
    table = table_to_learn_from()
    predicted = []
    for app in APPS:
        runs = of_app(table, app, FULL)
        runs = runs.assign(day=days_of(runs), reserved=False).reset_index(drop=True)
        for fold in folds(runs, "new sitting", n_folds=SUBJECT_FOLDS, seed=SEED):
            train, test = runs.iloc[fold.train], runs.iloc[fold.test]
            if chosen := draws(fold, LOCAL_RUNS, 1, SEED):
                print(f"worth: {app}, {len(test)} runs", file=sys.stderr, flush=True)
                predicted.append(_of_fold(train, test, runs.iloc[chosen[0]]))
    jobs = pd.concat(predicted)
    jobs = jobs[(jobs["cpus"] == 1) & ~jobs["noisy"]]
    halves = jobs["subject"].map(lambda name: HALVES[side(str(name), SEED, 0.5) == "test"])
    columns = [
        "half", "app", "subject", *TARGETS, *(f"{t}_median" for t in TARGETS),
        *(f"{t}_upper" for t in TARGETS), *(f"{t}_{rule}" for t in TARGETS for rule in RULES),
        "calibrated",
    ]  # fmt: skip
    write_json(
        OUT,
        {
            "jobs": jobs.assign(half=halves)[columns].to_dict("records"),
            "confidence": UPPER, "families": list(FAMILIES), "trials": TRIALS, "seed": SEED,
            "local_runs": LOCAL_RUNS,
        },
    )  # fmt: skip
    return 0


def _of_fold(train: pd.DataFrame, test: pd.DataFrame, local: pd.DataFrame) -> pd.DataFrame:
    """Return the held-out runs with their predictions and what rules make of the others."""
    predicted = voxcast_predictions(
        train, test, families=FAMILIES, trials=TRIALS, seed=SEED, local=local,
        cache=FoldCache(FOLDS),
    )  # fmt: skip
    seen = train[train["cpus"] == 1]
    voxels = test.set_index("cell_key")[SIZE].loc[predicted["cell_key"]].to_numpy(dtype=float)
    for target in TARGETS:
        values = seen[target].to_numpy(dtype=float)
        line = np.polynomial.Polynomial.fit(seen[SIZE], values, 1)
        spread = float(np.std(values - line(seen[SIZE].to_numpy(dtype=float)), ddof=2))
        predicted = predicted.assign(**{
            f"{target}_largest": float(values.max()),
            f"{target}_percentile": float(np.quantile(values, PERCENTILE)),
            f"{target}_first": first_allocation(values),
            # Witt et al., HPCS 2019: a line in the size of the input, and deviations from it.
            f"{target}_line": np.maximum(line(voxels) + DEVIATIONS * spread, values.min()),
        })  # fmt: skip
    return predicted


def first_allocation(values: np.ndarray) -> float:
    """Return what is best asked for first, if the largest value follows (Tovar et al., TPDS 2018).

    Examples
    --------
    >>> first_allocation(np.array([1.0, 1.1, 1.2, 10.0]))
    1.2
    """
    candidates = np.sort(values)
    larger = 1 - np.arange(1, len(values) + 1) / len(values)
    return float(candidates[np.argmin(candidates + larger * candidates[-1])])


if __name__ == "__main__":
    sys.exit(main())
