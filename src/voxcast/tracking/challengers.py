"""The best model of each application, of the stages tune and train or of retraining.

Retraining judges a challenger from the grown history on the newest runs; it learned from nothing
of the runs it is judged on. If the rule promotes it, its recipe is registered as fitted to these
too, as the registry's rule does everywhere: recipes are judged, and registered with all that is on
record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.files import sha256_file, sha256_folder
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.selection import fitting
from voxcast.models.selection.comparison import (
    MIN_SUBJECTS,
    is_changed,
    judge,
    new_runs,
    split_by_time,
)
from voxcast.models.selection.cross_validation import TRAIN, validations
from voxcast.models.selection.leaderboard import load_leaderboard
from voxcast.models.selection.learning import learn
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.promotion import Rule, promote
from voxcast.tracking.runs import TUNED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from voxcast.models.selection.comparison import OutOfTime
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.records import Configuration
    from voxcast.tracking import runs

MODELS = Path("data/models")


@dataclass(frozen=True)
class AppFacts:
    """An application as it was measured; see `voxcast.serving.bundle.ServedApp`.

    ``noise_floor`` is the error that repeats of one run have, by target, in percent.
    """

    name: str
    version: str
    parameters: dict[str, Any]
    configurations: list[Configuration]
    coarse_points: int
    network_points: int
    characteristics: tuple[str, ...] = tuple(CHARACTERISTICS)
    noise_floor: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Challenger:
    """The best model of an application, fitted to all its runs on record.

    Attributes
    ----------
    validation : Validation
        Training runs.
    table_sha256 : str
        Hash of the table's file.
    leaderboard : Leaderboard
        Results of tuning; its best model is the challenger.
    models : Path
        Folder with one forecaster per family.
    """

    validation: Validation
    table_sha256: str
    leaderboard: Leaderboard
    models: Path

    @property
    def table(self) -> pd.DataFrame:
        """The training runs."""
        return self.validation.table

    @property
    def family(self) -> str:
        """Name of the family or ensemble."""
        return self.leaderboard.best

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the recipe."""
        return self.leaderboard.params[self.family]

    @property
    def metrics(self) -> dict[str, float]:
        """Errors by cross-validation."""
        return self.leaderboard.metrics[self.leaderboard.input_level][self.family]

    @property
    def forecaster(self) -> Path:
        """Folder of the fitted model."""
        return self.models / self.family

    @cached_property
    def forecaster_sha256(self) -> str:
        """Hash of the fitted model."""
        return sha256_folder(self.forecaster)


def challengers(project: Path, folds: int, seed: int) -> dict[str, Challenger]:
    """Return the challenger of each application; errors as `validations`."""
    table_sha256 = None
    by_app = {}
    for app, validation in validations(project, folds, seed).items():
        table_sha256 = table_sha256 or sha256_file(project / TRAIN)
        keys = validation.table["cell_key"].tolist()
        leaderboard = load_leaderboard(project / TUNED / app, keys)
        by_app[app] = Challenger(validation, table_sha256, leaderboard, project / MODELS / app)
    return by_app


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
    keys = bundle.trained_on(app.name).cell_keys
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
        forecaster = fitting.fit_forecaster(
            validation, refitted, challenger.family, rule.uncalibrated_factor
        )
        forecaster.save(challenger.forecaster)
        return promote(session, project, app, challenger, rule, out_of_time=judgement)
