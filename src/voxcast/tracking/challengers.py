"""The best model of each application, as the stages tune and train left it; and its rival."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.features.rows import MIN_SUBJECTS
from voxcast.files import canonical_json, sha256_file, sha256_folder
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.selection import fitting
from voxcast.models.selection.comparison import Contender, disturbed
from voxcast.models.selection.cross_validation import TRAIN, validations
from voxcast.models.selection.leaderboard import load_leaderboard
from voxcast.models.selection.promotion_rule import Rival

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.records import Configuration
    from voxcast.serving.bundle import Bundle
    from voxcast.serving.served_app import ServedApp

TUNED = Path("data/tune")
MODELS = Path("data/models")


@dataclass(frozen=True)
class AppFacts:
    """An application as it was measured; see `voxcast.serving.served_app.ServedApp`.

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


COMPLETE = 0.9  # share of a champion's runs on record; disturbed runs may have been replaced


def rival_of(app: AppFacts, challenger: Challenger, bundle: Bundle | None) -> Rival | None:
    """Describe the champion of an application; None if there is none.

    Raises
    ------
    ModelError
        If its files are damaged.
    """
    if bundle is None or app.name not in bundle.apps:
        return None
    bundle.check(app.name)
    served, table = bundle.apps[app.name], challenger.table
    champion = served.promotion
    its_contender = contender_of(bundle, app.name, table)
    its_rows = its_contender.rows
    its_subjects = set(table["subject"][its_rows])
    noisy = disturbed(table)[~its_rows]
    return Rival(
        readable=True,
        same_model=challenger.forecaster_sha256 == served.forecaster_sha256,
        same_facts=_facts(app) == _facts(served),
        same_version=champion.app_version == app.version,
        calibrated=champion.calibrated,
        judged_as_fitted=its_contender.fitted is not None,
        # Subjects too few for a test side may be on that side now.
        is_included=champion.subjects <= max(len(its_subjects), MIN_SUBJECTS - 1),
        new_subjects=len(set(table["subject"]) - its_subjects),
        disturbed=champion.noisy_runs / champion.runs,
        new_disturbed=float(noisy.mean()) if len(noisy) else 0.0,
        contender=its_contender,
    )


def _facts(app: AppFacts | ServedApp) -> str:
    """Return the facts a forecaster is served with, in a form to compare."""
    allocations = [[c.device, c.cpus, c.gpus] for c in app.configurations]
    grids = [app.coarse_points, app.network_points]
    return canonical_json([app.parameters, allocations, grids, sorted(app.characteristics)])


def contender_of(bundle: Bundle, app: str, table: pd.DataFrame) -> Contender:
    """Return a champion's recipe with its training runs that are in ``table``.

    If subjects that it learned from or more than a tenth of its runs are not, or this release has
    not its recipe, it is judged as it was fitted.
    """
    promotion = bundle.apps[app].promotion
    rows = table["cell_key"].isin(bundle.cell_keys(app)).to_numpy(dtype=bool)
    can_be_fitted = fitting.can_be_fitted(promotion.family, promotion.params)
    is_complete = (
        table["subject"][rows].nunique() >= promotion.subjects
        and rows.sum() >= COMPLETE * promotion.runs
    )
    fitted = None if can_be_fitted and is_complete else bundle.forecaster(app)
    seen = frozenset(bundle.subjects(app))
    return Contender(promotion.family, promotion.params, rows, fitted, seen)
