"""Several models as one: their mean, or the weighted mean that was best on subjects not seen.

Logarithms are blended, so a blend is a geometric mean. What a blend would say of subjects that
its members did not see follows from what they said themselves: nothing is fitted again for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.files import read_json, write_json
from voxcast.models.families.zoo import FAMILIES
from voxcast.models.point_model import PointModel, regressed
from voxcast.models.selection.cross_validation import OutOfFold, objective

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.features.rows import Row
    from voxcast.models.families.zoo import Params
    from voxcast.models.point_model import InputLevel
    from voxcast.models.slowdown import SlowdownLaw

Weights = dict[str, tuple[float, ...]]  # by member: one weight a target

VOTERS = 3
LEAST_WEIGHT = 0.1  # a member with less only costs time
_ONE = 1e3  # how firmly the weights of a target add up to 1


@dataclass(frozen=True)
class Blend:
    """A weighted mean of models, with the interface of one; see `PointModel`."""

    family: str
    members: dict[str, PointModel]
    weights: Weights

    @property
    def params(self) -> dict[str, Any]:
        """The recipe, see `voxcast.models.selection.recipes`."""
        return blend_params({n: m.params for n, m in self.members.items()}, self.weights)

    @property
    def input_level(self) -> InputLevel:
        """What must be known of a volume."""
        return next(iter(self.members.values())).input_level

    @property
    def targets(self) -> tuple[str, ...]:
        """What is predicted."""
        return next(iter(self.members.values())).targets

    @property
    def law(self) -> SlowdownLaw | None:
        """How CPU time becomes wall time, by the first member: all learn it from the same runs."""
        return next(iter(self.members.values())).law

    @property
    def needs_volume(self) -> bool:
        """Whether a member cannot answer without the small volume."""
        return any(model.needs_volume for model in self.members.values())

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return in what each run is unlike all that were measured, see `Encoder.out_of_range`."""
        every = [model.out_of_range(rows) for model in self.members.values()]
        rowwise = zip(*every, strict=True)
        return [tuple(sorted({n for own in of_row for n in own})) for of_row in rowwise]

    def usual(self, row: Row) -> dict[str, float]:
        """Return the medians of what the members learned from."""
        return {k: v for model in self.members.values() for k, v in model.usual(row).items()}

    def predict(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: np.ndarray | None,
        host_classes: Sequence[str | None] | None = None,
    ) -> np.ndarray:
        """Return natural logarithms, shape (n, targets)."""
        return blended(
            {n: m.predict(rows, cpus, volumes, host_classes) for n, m in self.members.items()},
            self.weights,
        )

    def spread(self, rows: Sequence[Row], volumes: np.ndarray | None) -> np.ndarray:
        """Return how far each answer may be off, (n, targets, 2)."""
        return blended({n: m.spread(rows, volumes) for n, m in self.members.items()}, self.weights)

    def save(self, folder: Path) -> None:
        """Write the members into folders of their own, and ``blend.json``."""
        for name, model in self.members.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            model.save(folder / name)
        write_json(folder / "blend.json", {"family": self.family, **self.params})

    @classmethod
    def load(cls, folder: Path) -> Blend:
        """Read what `save` wrote."""
        content = read_json(folder / "blend.json")
        weights = weights_of(content)
        return cls(
            content["family"], {name: PointModel.load(folder / name) for name in weights}, weights
        )


def blend_params(members: Mapping[str, Params], weights: Weights) -> Params:
    """Return the parameters of a blend, as `voxcast.models.selection.recipes` reads them."""
    return {
        "members": {name: dict(members[name]) for name in weights},
        "weights": {name: list(own) for name, own in weights.items()},
    }


def weights_of(params: Mapping[str, Any]) -> Weights:
    """Return the weights among the parameters of a blend."""
    return {name: tuple(own) for name, own in params["weights"].items()}


def blended(found: Mapping[str, np.ndarray], weights: Weights) -> np.ndarray:
    """Return the weighted mean of members' answers, each of shape (n, targets) or more."""
    total = None
    for name, own in weights.items():
        answer = found[name]
        part = answer * np.reshape(own, (1, len(own)) + (1,) * (answer.ndim - 2))
        total = part if total is None else total + part
    assert total is not None  # noqa: S101  # a blend has members
    return total


def voting_weights(
    found: Mapping[str, OutOfFold], actual: np.ndarray, targets: Sequence[str]
) -> Weights:
    """Return equal weights of the families that do best on subjects not seen, baselines apart."""
    own = {n: objective(actual, o.logs, targets) for n, o in found.items() if not _baseline(n)}
    best = sorted(own, key=lambda name: (own[name], name))[:VOTERS]
    return {name: (1 / len(best),) * len(targets) for name in best}


def stacked_weights(
    found: Mapping[str, OutOfFold],
    actual: np.ndarray,
    targets: Sequence[str],
    rows: np.ndarray | None = None,
) -> Weights:
    """Return the weights, not negative and 1 in sum, whose blend is closest by least squares.

    Parameters
    ----------
    rows : ndarray of int, optional
        Learn from these alone, so that others can judge.

    References
    ----------
    Breiman, "Stacked regressions", Machine Learning 24, 1996.
    """
    from scipy.optimize import nnls

    at = np.arange(len(actual)) if rows is None else rows
    names = sorted(name for name in found if not _baseline(name))
    columns = []
    for k in range(len(targets)):
        logs = np.column_stack([found[name].logs[at, k] for name in names])
        goal = actual[at, k]
        # Around the goal's mean, where small differences between members are not lost in it.
        centre = goal.mean()
        scale = _ONE * np.sqrt(len(at)) * max(float(goal.std()), 1e-9)
        left = np.vstack([logs - centre, np.full((1, len(names)), scale)])
        solved, _ = nnls(left, np.append(goal - centre, scale))
        solved = np.where(solved < LEAST_WEIGHT, 0.0, solved)
        columns.append(solved / solved.sum() if solved.sum() > 0 else np.eye(len(names))[0])
    table = np.column_stack(columns)
    # What is derived from another target is blended like it.
    for k, target in enumerate(targets):
        if target not in regressed(targets):
            table[:, k] = table[:, list(targets).index("cpu_s")]
    return {
        name: tuple(float(w) for w in own)
        for name, own in zip(names, table, strict=True)
        if (own > 0).any()
    }


def out_of_fold(found: Mapping[str, OutOfFold], weights: Weights) -> OutOfFold:
    """Return what a blend would say of each run by members that did not see its subject."""
    return OutOfFold(
        blended({name: found[name].logs for name in weights}, weights),
        blended({name: found[name].spread for name in weights}, weights),
    )


def stacked_out_of_fold(
    found: Mapping[str, OutOfFold],
    actual: np.ndarray,
    targets: Sequence[str],
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
) -> OutOfFold:
    """Return `out_of_fold` of stacking, the weights of each fold learned from the others."""
    logs, spread = np.empty_like(actual), np.empty((*actual.shape, 2))
    for train, held_out in folds:
        own = out_of_fold(found, stacked_weights(found, actual, targets, train))
        logs[held_out], spread[held_out] = own.logs[held_out], own.spread[held_out]
    return OutOfFold(logs, spread)


def _baseline(name: str) -> bool:
    return name in FAMILIES and FAMILIES[name].baseline
