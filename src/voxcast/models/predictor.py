"""The interface of a single model and of a blend, and the speeds that its answers are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from voxcast.models.speed.speeds import SpeedEstimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from voxcast.features.rows import Row
    from voxcast.models.query import Query
    from voxcast.models.speed.speeds import Speeds


class Predictor(Protocol):
    """The interface of a single model and of a blend."""

    @property
    def family(self) -> str:
        """Name of the family or of the ensemble."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""

    @property
    def needs_volume(self) -> bool:
        """Whether every query must have its small volume."""

    @property
    def needs_content(self) -> bool:
        """Whether it learned from characteristics of the voxels."""

    def predict(self, queries: Sequence[Query]) -> np.ndarray:
        """Return natural logarithms, shape (n, targets)."""

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features outside the range of the training rows."""

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return for each row how far it is outside, by combination of two features.

        As logarithms, see `voxcast.models.families.joint_range`.
        """

    def medians(self, query: Query) -> dict[str, float]:
        """Return the training medians of the features."""

    def ranges(self, query: Query) -> dict[str, tuple[float, float]]:
        """Return the training ranges of the features that are checked."""

    def speeds_of(self, app: str) -> Speeds | None:
        """Return the speeds of machines for an application, None where machines are not known."""

    def with_speeds(self, speeds: Mapping[str, Speeds]) -> Predictor:
        """Return the model with other speeds of machines, by application."""

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``."""


def speed_estimates(model: Predictor, queries: Sequence[Query]) -> list[SpeedEstimate]:
    """Return the speed of the machine of each query; 0, and known, without machines."""
    estimates = []
    for query in queries:
        speeds = model.speeds_of(query.app)
        average = SpeedEstimate(0.0, 0.0)
        estimates.append(average if speeds is None else speeds.estimate(query.host, query.sitting))
    return estimates
