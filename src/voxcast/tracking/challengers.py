"""The best model of each application, as the stages tune and train left it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.files import sha256_file, sha256_folder
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.selection.cross_validation import TRAIN, validations
from voxcast.models.selection.leaderboard import load_leaderboard

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.records import Configuration

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

    def is_model(self, recorded: str) -> bool:
        """Whether it is the model with this hash."""
        return self.forecaster_sha256 == recorded


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
