"""Whole-run models and HARP's epochs estimator on the runs of a study of signatures.

They predict a run before it starts, from its parameters and other runs; a signature has seen a
part of the run itself. Whole-run models regress the total; the epochs estimator regresses the
start and the time of one cycle, and multiplies that by the number of cycles, see
`voxcast.evaluation.harp_regressors`. Both take the logarithms of all parameters and of the number
of processes as features, and the linear and tree regressors of HARP on standardised times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.evaluation.harp_regressors import RepeatedPhase, TimeRegressor, fit_phases
from voxcast.phases.signature import tick_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.evaluation.harp_regressors import TimeModel
    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.predict import Cycles

PHASES = (RepeatedPhase("start"), RepeatedPhase("cycle", "cycles"))
FAMILIES = {"linear": "MLR", "tree": "DTR"}


def rivals(
    runs: Sequence[tuple[dict[str, Any], float, Cycles, LogicalTrace]],
) -> dict[str, list[tuple[str, float]]]:
    """Return (application, relative error) of each run by estimator, of what was left out.

    Left out is all of a workload, on any number of processes, or the run alone: then the same
    workload on other numbers of processes was seen.
    """
    errors: dict[str, list[tuple[str, float]]] = {}
    for app in sorted({facts["app"] for facts, *_ in runs}):
        of_app = [run for run in runs if run[0]["app"] == app]
        table = pd.DataFrame([_features(facts, cycles) for facts, _, cycles, _ in of_app])
        workload = [_workload(facts) for facts, *_ in of_app]
        total_s = np.array([elapsed_s for _, elapsed_s, *_ in of_app])
        cycle_s = np.array([_cycle_s(cycles, trace) for *_, cycles, trace in of_app])
        count = table["cycles"].to_numpy(float)
        spent_s = {"start": total_s - cycle_s * count, "cycle": cycle_s * count}
        for held_out, groups in (("workload", workload), ("run", list(range(len(of_app))))):
            for n in range(len(of_app)):
                rest = np.array([group != groups[n] for group in groups])
                if not rest.any():
                    continue
                for name, family in FAMILIES.items():
                    fit = _fitter(family)
                    total = fit(table[rest], total_s[rest])(table.iloc[[n]])
                    parts = fit_phases(
                        PHASES, table[rest], {k: v[rest] for k, v in spent_s.items()}, fit
                    ).predict(table.iloc[[n]])
                    for kind, predicted in (("whole run", total), ("epochs estimator", parts)):
                        key = f"{kind}, {name}, unseen {held_out}"
                        error = float(predicted[0] / total_s[n] - 1)
                        errors.setdefault(key, []).append((app, error))
    return errors


def _features(facts: dict[str, Any], cycles: Cycles) -> dict[str, float]:
    numbers = {k: v for k, v in facts["parameters"].items() if isinstance(v, int | float)}
    words = {f"{k}={v}": 1.0 for k, v in facts["parameters"].items() if isinstance(v, str) and v}
    return {**numbers, **words, "processes": facts["processes"], "cycles": cycles.count}


def _workload(facts: dict[str, Any]) -> str:
    return repr(sorted((k, v) for k, v in facts["parameters"].items() if k != "oversubscription"))


def _cycle_s(cycles: Cycles, trace: LogicalTrace) -> float:
    part = tick_times(trace).advance_s[cycles.first_tick : cycles.stop_tick]
    return float(part.sum()) / cycles.repeated


def _fitter(family: str) -> Any:
    def fit(features: pd.DataFrame, times_s: np.ndarray) -> TimeModel:
        def columns(table: pd.DataFrame) -> np.ndarray:
            logarithms: np.ndarray = np.log1p(table.fillna(0.0).to_numpy(float))
            return logarithms

        model = TimeRegressor(family, scaled=True).fit(columns(features), times_s)
        return lambda table: model.predict(columns(table))

    return fit
