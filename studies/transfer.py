"""Study: transfer of a history from one network to another, as in HARP.

There is a history of network A, and a few runs of network B. The error on other runs of B
decreases with their number, and with their cost: ``cold`` uses B's runs alone, ``transferred``
A's model corrected by B's runs, ``pooled`` one model of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.evaluation.recorded_table import of_app
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

APP, NETWORK = "dnn_train", "parameter.network"
COUNTS = (2, 4, 8, 12, 16)
REPEATS = 20
MIN_TEST_RUNS = 6  # of B
FAMILY = "gaussian_process"
CPU = TARGETS.index("cpu_s")


def study(
    table: pd.DataFrame,
    *,
    app: str = APP,
    by: str = NETWORK,
    repeats: int = REPEATS,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return learning curves for every ordered pair of networks.

    Parameters
    ----------
    by : str
        Column whose values are the networks.

    Returns
    -------
    dict
        By ``A -> B``, a list of ``runs`` (of B), ``cost_s`` (CPU time of these runs) and the mean
        error of CPU time in percent, ``cold``, ``transferred`` and ``pooled``: the median over
        draws and their quartiles, because a model of few runs can extrapolate wildly.
    """
    runs = of_app(table, app)
    runs = runs.drop_duplicates(["parameters_json", "scale"]).reset_index(drop=True)
    networks = sorted(runs[by].unique()) if by in runs else []
    curves: dict[str, Any] = {}
    for a in networks:
        for b in networks:
            if a == b:
                continue
            on_step(f"{a} to {b}")
            curves[f"{a} -> {b}"] = _curve(runs[runs[by] == a], runs[runs[by] == b], repeats, seed)
    return curves


def _curve(a: pd.DataFrame, b: pd.DataFrame, repeats: int, seed: int) -> list[dict[str, Any]]:
    import pandas as pd

    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(b)) for _ in range(repeats)]
    points = []
    for n in (n for n in COUNTS if n + MIN_TEST_RUNS <= len(b)):
        errors: dict[str, list[float]] = {"cold": [], "transferred": [], "pooled": []}
        costs = []
        for order in orders:
            train, test = b.iloc[order[:n]], b.iloc[order[n:]]
            costs.append(float(train["cpu_s"].sum()))
            logs = {
                "cold": _predicted_logs(train, test),
                "transferred": _predicted_logs(a, test) + _log_correction(a, train),
                "pooled": _predicted_logs(pd.concat([a, train]), test),
            }
            actual = test["cpu_s"].to_numpy()
            for method, predicted in logs.items():
                share = np.abs(np.exp(predicted) - actual) / actual
                errors[method].append(float(100 * np.mean(share)))
        point: dict[str, Any] = {"runs": n, "cost_s": float(np.mean(costs))}
        for method, by_draw in errors.items():
            point[method] = float(np.median(by_draw))
            point[f"{method}_quartiles"] = [float(np.quantile(by_draw, q)) for q in (0.25, 0.75)]
        points.append(point)
    return points


def _predicted_logs(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    model = point_model.fit(train, None, FAMILY, FAMILIES[FAMILY].defaults, "volume", 0)
    logs: np.ndarray = point_model.predict_table(model, test, None)[:, CPU]
    return logs


def _log_correction(a: pd.DataFrame, train: pd.DataFrame) -> float:
    """Return the median log ratio of B's runs to the predictions of A's model."""
    return float(np.median(np.log(train["cpu_s"].to_numpy()) - _predicted_logs(a, train)))
