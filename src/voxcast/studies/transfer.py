"""Study: one application's history helps with another's, as HARP moves from net to net.

A history of network A is at hand; of network B some runs are made. The error on other runs of B
falls with their number, and with what they cost: ``cold`` has B's runs alone, ``transferred`` A's
model corrected by B's runs, ``pooled`` one model of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models import point_model
from voxcast.models.families.zoo import FAMILIES
from voxcast.records import TARGETS
from voxcast.studies.recorded_table import of_app

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

APP, NETWORK = "dnn_train", "parameter.network"
COUNTS = (2, 4, 8, 12, 16)
REPEATS = 20
LEFT = 6  # runs of B that are asked about, at least
FAMILY = "gaussian_process"
CPU = TARGETS.index("cpu_s")


def study(
    table: pd.DataFrame,
    *,
    app: str = APP,
    by: str = NETWORK,
    repeats: int = REPEATS,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Return learning curves for every ordered pair of kinds.

    Returns
    -------
    dict
        By ``A -> B``, a list of ``runs`` (of B), ``cost_s`` (CPU time of these runs) and the mean
        error of CPU time in percent, ``cold``, ``transferred`` and ``pooled``: the median over
        draws, and their quartiles. Few runs may lie so that a model is wild beyond them.
    """
    own = of_app(table, app)
    own = own.drop_duplicates(["parameters_json", "scale"]).reset_index(drop=True)
    kinds = sorted(own[by].unique()) if by in own else []
    found: dict[str, Any] = {}
    for a in kinds:
        for b in kinds:
            if a == b:
                continue
            on_step(f"{a} to {b}")
            found[f"{a} -> {b}"] = _curve(own[own[by] == a], own[own[by] == b], repeats, seed)
    return found


def _curve(a: pd.DataFrame, b: pd.DataFrame, repeats: int, seed: int) -> list[dict[str, Any]]:
    import pandas as pd

    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(len(b)) for _ in range(repeats)]
    points = []
    for n in (n for n in COUNTS if n + LEFT <= len(b)):
        errors: dict[str, list[float]] = {"cold": [], "transferred": [], "pooled": []}
        costs = []
        for order in drawn:
            some, others = b.iloc[order[:n]], b.iloc[order[n:]]
            costs.append(float(some["cpu_s"].sum()))
            said = {
                "cold": _logs(some, others),
                "transferred": _logs(a, others) + _correction(a, some),
                "pooled": _logs(pd.concat([a, some]), others),
            }
            actual = others["cpu_s"].to_numpy()
            for who, logs in said.items():
                errors[who].append(float(100 * np.mean(np.abs(np.exp(logs) - actual) / actual)))
        point: dict[str, Any] = {"runs": n, "cost_s": float(np.mean(costs))}
        for who, own in errors.items():
            point[who] = float(np.median(own))
            point[f"{who}_quartiles"] = [float(np.quantile(own, q)) for q in (0.25, 0.75)]
        points.append(point)
    return points


def _logs(train: pd.DataFrame, asked: pd.DataFrame) -> np.ndarray:
    model = point_model.fit(train, None, FAMILY, FAMILIES[FAMILY].defaults, "volume", 0)
    found: np.ndarray = point_model.predict_table(model, asked, None)[:, CPU]
    return found


def _correction(a: pd.DataFrame, some: pd.DataFrame) -> float:
    """Return by how much B's runs are above what A's model says of them: one factor for all."""
    return float(np.median(np.log(some["cpu_s"].to_numpy()) - _logs(a, some)))
