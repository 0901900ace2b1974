"""A weighted mean of models. Logarithms are averaged, so a blend is a geometric mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.model_files import read_sealed, subfolder, write_sealed
from voxcast.models.point_model import PointModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.features.rows import Row
    from voxcast.models.families.family import Params
    from voxcast.models.query import Query
    from voxcast.models.speed.speeds import Speeds

Weights = dict[str, tuple[float, ...]]  # by member: one weight per target


@dataclass(frozen=True)
class Blend:
    """A weighted mean of models; see `voxcast.models.point_model.Predictor`."""

    family: str
    members: dict[str, PointModel]
    weights: Weights

    @property
    def params(self) -> dict[str, Any]:
        """The recipe, see `voxcast.models.selection.recipes`."""
        return blend_params({n: m.params for n, m in self.members.items()}, self.weights)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets."""
        return next(iter(self.members.values())).targets

    @property
    def needs_volume(self) -> bool:
        """Whether a member needs the small volume."""
        return any(model.needs_volume for model in self.members.values())

    @property
    def needs_content(self) -> bool:
        """Whether a member learned from characteristics of the voxels."""
        return any(model.needs_content for model in self.members.values())

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features that are out of range for any member."""
        by_member = [model.out_of_range(rows) for model in self.members.values()]
        by_row = zip(*by_member, strict=True)
        return [
            tuple(dict.fromkeys(f for names in names_of_row for f in names))
            for names_of_row in by_row
        ]

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the distance of each row in combinations, the largest of all members."""
        by_member = [model.joint_distances(rows) for model in self.members.values()]
        return [
            {
                name: max(far.get(name, 0.0) for far in of_row)
                for name in dict.fromkeys(name for far in of_row for name in far)
            }
            for of_row in zip(*by_member, strict=True)
        ]

    def medians(self, query: Query) -> dict[str, float]:
        """Return the training medians of the members' features."""
        return {k: v for model in self.members.values() for k, v in model.medians(query).items()}

    def ranges(self, query: Query) -> dict[str, tuple[float, float]]:
        """Return the training ranges of the members' features."""
        return {k: v for model in self.members.values() for k, v in model.ranges(query).items()}

    def predict(self, queries: Sequence[Query]) -> np.ndarray:
        """Return natural logarithms, shape (n, targets)."""
        return weighted_mean(
            {n: m.predict(queries) for n, m in self.members.items()}, self.weights
        )

    def speeds_of(self, app: str) -> Speeds | None:
        """Return the speeds of machines for an application, which all members share."""
        return next(iter(self.members.values())).speeds_of(app)

    def with_speeds(self, speeds: Mapping[str, Speeds]) -> Blend:
        """Return the blend with other speeds of machines, by application."""
        members = {name: model.with_speeds(speeds) for name, model in self.members.items()}
        return replace(self, members=members)

    def save(self, folder: Path) -> None:
        """Write each member into a subfolder, and ``blend.json``."""
        for name, model in self.members.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            model.save(folder / name)
        write_sealed(folder / "blend.json", {"family": self.family, **self.params})

    @classmethod
    def load(cls, folder: Path) -> Blend:
        """Read what `save` wrote."""
        content = read_sealed(folder / "blend.json")
        weights = weights_of(content)
        members = {name: PointModel.load(subfolder(folder, name)) for name in weights}
        return cls(content["family"], members, weights)


def blend_params(members: Mapping[str, Params], weights: Weights) -> Params:
    """Return the parameters of a blend, as `voxcast.models.selection.recipes` reads them."""
    return {
        "members": {name: dict(members[name]) for name in weights},
        "weights": {name: list(by_target) for name, by_target in weights.items()},
    }


def weights_of(params: Mapping[str, Any]) -> Weights:
    """Return the weights among the parameters of a blend."""
    return {name: tuple(by_target) for name, by_target in params["weights"].items()}


def weighted_mean(logs: Mapping[str, np.ndarray], weights: Weights) -> np.ndarray:
    """Return the weighted mean of the members' logarithms, each of shape (n, targets)."""
    terms = [logs[name] * np.array(by_target) for name, by_target in weights.items()]
    mean: np.ndarray = np.sum(terms, axis=0)
    return mean
