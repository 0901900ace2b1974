"""Retraining: a challenger from the grown history, judged on the newest runs, then promoted.

The challenger that is judged learned from nothing of the runs it is judged on. If the rule
promotes it, its recipe is registered as fitted to these too, as the registry's rule does
everywhere: recipes are judged, and registered with all that is on record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.files import sha256_file
from voxcast.models.selection import fitting
from voxcast.models.selection.comparison import (
    MIN_SUBJECTS,
    is_changed,
    judge,
    new_runs,
    split_by_time,
)
from voxcast.models.selection.fitting import fit_forecaster
from voxcast.models.selection.learning import learn
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.challengers import AppFacts, Challenger
from voxcast.tracking.promotion import Rule, promote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from voxcast.models.selection.comparison import OutOfTime
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.tracking import runs

TOO_LITTLE = "too_little_new"


@dataclass(frozen=True)
class Tuning:
    """How challengers are tuned: families, trials of each, and the time for all."""

    families: tuple[str, ...]
    trials: int
    budget_s: float


def retrain(
    session: runs.Session,
    project: Path,
    app: AppFacts,
    validation: Validation,
    tuning: Tuning,
    rule: Rule,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Fit, judge and perhaps register a challenger of an application.

    Parameters
    ----------
    validation : Validation
        All runs on record that may train, of this application.
    on_step : callable
        Called with a description of the next step.

    Returns
    -------
    dict
        The receipt of `voxcast.tracking.promotion.promote`, with ``judged`` (runs, subjects, and
        since when) and ``new`` (runs and subjects newer than the champion's); ``reason`` is
        `TOO_LITTLE` where nothing was fitted.
    """
    table = validation.table
    bundle = ModelStore.of(project).current()
    if bundle is None or app.name not in bundle.apps:
        # There is nothing to be judged against: the rule decides without a comparison.
        on_step("tuning; there is no champion to judge against")
        leaderboard = _tuned(validation, tuning)
        return _promoted(session, project, app, validation, leaderboard, rule, None)
    keys = bundle.cell_keys(app.name)
    split = split_by_time(table, keys)
    new = new_runs(table, keys)
    counts = {"runs": int(new.sum()), "subjects": int(table["subject"][new].nunique())}
    if split is None:
        detail = (
            f"{counts['runs']} runs of {counts['subjects']} subjects are newer than those of the "
            f"champion; {2 * MIN_SUBJECTS} subjects are needed, half to learn from and half to "
            "judge on"
        )
        return {
            "registered": False, "reason": TOO_LITTLE, "detail": detail, "new": counts,
            "version": bundle.version, "under_load": [],
        }  # fmt: skip
    usable = np.ones(len(table), dtype=bool)
    if is_changed(validation, split):
        usable = split.new
    on_step(f"tuning on {int((usable & split.training).sum())} runs")
    part = validation.part(np.flatnonzero(split.training & usable))
    leaderboard = _tuned(part, tuning)
    on_step("judging on the newest runs")
    name = leaderboard.best
    judgement = judge(
        validation,
        np.flatnonzero(split.newest),
        fitting.fit(part, name, leaderboard.params[name], "volume"),
        bundle.forecaster(app.name),
        rule.upper_quantile,
        rule.max_under_request,
    )
    final = validation.part(np.flatnonzero(usable))
    receipt = _promoted(session, project, app, final, leaderboard, rule, judgement)
    newest_subjects = int(table["subject"][split.newest].nunique())
    judgement_set = {
        "runs": int(split.newest.sum()),
        "subjects": newest_subjects,
        "since": split.since,
    }
    return receipt | {"new": counts, "judged": judgement_set}


def _tuned(validation: Validation, tuning: Tuning) -> Leaderboard:
    return learn(
        validation, tuning.families, trials=tuning.trials, budget_s=tuning.budget_s,
        input_levels=("volume", "header"),
    )  # fmt: skip


def _promoted(
    session: runs.Session,
    project: Path,
    app: AppFacts,
    validation: Validation,
    leaderboard: Leaderboard,
    rule: Rule,
    judgement: OutOfTime | None,
) -> dict[str, Any]:
    """Fit the recipe to all runs of a validation, and let the rule decide."""
    name = leaderboard.best
    recipe = leaderboard.params[name]
    names: Sequence[str] = list(recipe["members"]) if fitting.is_blend(recipe) else [name]
    fixed = {n: p for n, p in leaderboard.tuned.items() if n in names}
    refitted = learn(
        validation, names, trials=1, fixed_params=fixed, input_levels=("volume", "header")
    )
    if name in refitted.params:
        refitted = replace(refitted, chosen={**refitted.chosen, refitted.input_level: name})
    with TemporaryDirectory() as work:
        table_file = Path(work) / "table.parquet"
        validation.table.to_parquet(table_file)
        challenger = Challenger(
            validation, sha256_file(table_file), refitted, Path(work) / "models"
        )
        forecaster = fit_forecaster(
            validation, refitted, challenger.family, rule.uncalibrated_factor
        )
        forecaster.save(challenger.forecaster)
        return promote(session, project, app, challenger, rule, out_of_time=judgement)
