"""Study: does the sum of one prediction a phase beat one prediction of the run?

Both use the same family of models with its default parameters, the same features and the same
folds by subject. A run's CPU and wall time are the sums over its phases and the rest outside of
them, its peak memory is the highest of its phases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.evaluation.holdouts import split
from voxcast.evaluation.out_of_sample import pooled, run_columns
from voxcast.evaluation.recorded_table import FULL, of_app
from voxcast.evaluation.scoring import errors, paired
from voxcast.features.phase_labels import REST
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

COMPARED = ("ridge", "extra_trees")
RUN, SUM = "run", "sum_of_phases"
SMALLEST_S = 1e-3  # times have logarithms, and clocks this resolution
CPU, WALL, MEMORY = TARGETS


def study(
    table: pd.DataFrame,
    phases: pd.DataFrame,
    *,
    families: Sequence[str] = COMPARED,
    folds: int = 5,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Compare the two ways by application, family and target.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.recorded_table`.
    phases : DataFrame
        With peaks, see `voxcast.runs.series.with_peaks`.

    Returns
    -------
    dict
        By application ``runs``, ``phases`` and by family: the errors of `RUN` and `SUM`, see
        `voxcast.evaluation.scoring.errors`, and by target the ``difference``, the error of `SUM`
        minus that of `RUN`, see `voxcast.evaluation.scoring.paired`.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        runs = of_app(table, app, FULL)
        if runs.empty:
            continue
        names, by_phase = phase_labels(runs, phases)
        runs = runs[runs["cell_key"].isin(by_phase[names[0]].index)].reset_index(drop=True)
        runs["subject"] = runs["subject"].where(runs["subject"] != "", runs["cell_key"])
        results[app] = {"runs": len(runs), "phases": names, "families": {}}
        outer = split(runs, "subject", folds=folds, seed=seed).folds
        for family in families:
            on_step(f"{app}: {family}")
            by_method: dict[str, list[pd.DataFrame]] = {RUN: [], SUM: []}
            for fold in outer:
                train, test = runs.iloc[fold.train], runs.iloc[fold.test]
                of_run = _predicted(train, test, family)
                of_phases = np.array([
                    _predicted(_labelled(train, labels), test, family)
                    for labels in by_phase.values()
                ])  # fmt: skip
                summed = of_phases.sum(axis=0)
                summed[:, TARGETS.index(MEMORY)] = of_phases[..., TARGETS.index(MEMORY)].max(
                    axis=0
                )
                for method, values in ((RUN, of_run), (SUM, summed)):
                    medians = {f"{t}_median": values[:, n] for n, t in enumerate(TARGETS)}
                    by_method[method].append(run_columns(test).assign(**medians))
            run, phase_sum = (pooled(by_method[method]) for method in (RUN, SUM))
            results[app]["families"][family] = {
                RUN: errors(run),
                SUM: errors(phase_sum),
                "difference": {target: paired(run, phase_sum, target) for target in TARGETS},
            }
    return results


def phase_labels(
    runs: pd.DataFrame, phases: pd.DataFrame
) -> tuple[list[str], dict[str, pd.DataFrame]]:
    """Return the phases of most runs, and by phase the targets of the runs that have them.

    Returns
    -------
    names : list of str
        The phases, and `voxcast.features.phase_labels.REST`.
    by_phase : dict of str to DataFrame
        By cell key, columns `TARGETS`. Phases that occur several times are added up.
    """
    of_runs = phases[phases["cell_key"].isin(set(runs["cell_key"]))]
    sums = of_runs.groupby(["cell_key", "phase"], sort=False).agg(
        cpu_s=(CPU, "sum"), runtime_s=("duration_s", "sum"), peak_rss_bytes=(MEMORY, "max")
    )
    orders = of_runs.groupby("cell_key")["phase"].agg(_joined)
    usual = str(orders.value_counts().index[0])
    names = usual.split("\n")
    keys = [key for key in orders.index[orders == usual]
            if sums.loc[key, MEMORY].notna().all()]  # fmt: skip
    by_phase: dict[str, pd.DataFrame] = {}
    for name in names:
        of_phase = sums[sums.index.get_level_values("phase") == name].droplevel("phase")
        by_phase[name] = of_phase.loc[keys, list(TARGETS)].astype(float)
    whole_runs = runs.set_index("cell_key").loc[keys]
    rest = whole_runs[list(TARGETS)].astype(float)
    for labels in by_phase.values():
        rest = rest - labels
    # Memory comes from the phases: no peak lies outside them.
    peaks = np.array([labels[MEMORY].to_numpy() for labels in by_phase.values()])
    by_phase[REST] = rest.assign(**{MEMORY: peaks.min(axis=0)})
    return [*names, REST], {
        name: labels.assign(**{time: labels[time].clip(lower=SMALLEST_S) for time in (CPU, WALL)})
        for name, labels in by_phase.items()
    }


def _joined(names: pd.Series) -> str:
    return "\n".join(dict.fromkeys(names))


def _labelled(train: pd.DataFrame, labels: pd.DataFrame) -> pd.DataFrame:
    return train.assign(**{target: labels.loc[train["cell_key"], target].to_numpy()
                           for target in TARGETS})  # fmt: skip


def _predicted(train: pd.DataFrame, test: pd.DataFrame, family: str) -> np.ndarray:
    """Return the predicted targets, shape (runs, targets)."""
    model = point_model.fit(train, None, family, FAMILIES[family].defaults, "volume", 0)
    values: np.ndarray = np.exp(point_model.predict_table(model, test, None))
    return values
