"""The range that training rows cover, and which rows lie outside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import CONTENT, content_names
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.models.families.columns import (
    digest,
    encoded_and_all,
    numbers_of,
    split_columns,
)
from voxcast.models.families.joint_range import JointRange, joint_range_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.features.rows import Row

# Columns that determine the work and are checked against the training range. Textures are not:
# nearly every scanner has one beyond all others. Characteristics that a laboratory declares for an
# application are checked.
WATCHED = (
    "allocation.",
    "parameter.",
    "column.",
    "header.megavoxels",
    "content.foreground_megavoxels",
)
NOT_WATCHED = frozenset(name for entry in CHARACTERISTICS for name in content_names(entry))
REACH = 1.25  # by which a size may exceed its range


@dataclass(frozen=True)
class TrainingRange:
    """The range of training rows.

    Attributes
    ----------
    numbers : dict of str to tuple of float
        Smallest and largest value of the columns that are checked.
    spans : dict of str to tuple of float
        The same of all columns of numbers.
    texts : dict of str to tuple of str
        Hashes of the values of each categorical column.
    complete : tuple of str
        Columns that no training row lacks: out of range where missing.
    joint : JointRange
        Combinations of columns with a range that the training rows cover.
    """

    numbers: Mapping[str, tuple[float, float]]
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    complete: tuple[str, ...] = ()
    joint: JointRange = field(default_factory=JointRange)

    @classmethod
    def fit(
        cls, rows: Sequence[Row], *, content: bool, subjects: Sequence[str] = ()
    ) -> TrainingRange:
        """Learn the range of ``rows``.

        Parameters
        ----------
        rows : sequence of Row
            Training rows.
        content : bool
            Whether the voxels' characteristics are known when rows are checked.
        subjects : sequence of str, optional
            Subject of each row. Without them no combination of columns is out of range.
        """
        numbers, texts = split_columns(rows)
        # In a table of several tools not all rows have all columns.
        finite = {name: values[np.isfinite(values)] for name, values in numbers.items()}
        spans = {n: (float(v.min()), float(v.max())) for n, v in finite.items() if v.size}
        ranges = {name: span for name, span in spans.items() if is_watched(name)}
        # A question from the header alone is asked without content, and lacks none.
        checked = [name for name in ranges if content or not name.startswith(CONTENT)]
        return cls(
            ranges,
            spans,
            {
                name: tuple(digest(text) for text in encoded_and_all(values)[1])
                for name, values in texts.items()
            },
            (
                *(name for name in checked if not np.isnan(numbers[name]).any()),
                *(name for name, values in texts.items() if all(map(_is_text, values))),
            ),
            joint_range_of(numbers, list(filter(is_watched, numbers)), subjects),
        )

    def outside(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features outside the range.

        Sizes may exceed it by `REACH`; other numbers may not, categories must occur in training. A
        missing value is outside if no training row lacks it. Of a row in range of all of them, the
        combinations of two numbers that training does not cover are named, see
        `voxcast.features.combinations`.
        """
        features: list[list[str]] = [[] for _ in rows]
        complete = set(self.complete)
        for name, (low, high) in self.numbers.items():
            values = numbers_of(rows, name)
            inside = within(name, values, low, high)
            for n in np.flatnonzero(~inside & (np.isfinite(values) | (name in complete))):
                features[n].append(name)
        for name, digests in self.texts.items():
            seen = frozenset(digests)
            for n, row in enumerate(rows):
                text = row.get(name)
                is_new = isinstance(text, str) and digest(text) not in seen
                if is_new or (name in complete and not isinstance(text, str)):
                    features[n].append(name)
        together = self.joint_distances(rows)
        return [tuple(names or far) for names, far in zip(features, together, strict=True)]

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the distance of each row in combinations, see `JointRange.outside`."""
        values = {name: numbers_of(rows, name) for name in self.joint.sources}
        return self.joint.outside(values, len(rows))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TrainingRange:
        """Read what `to_json` returned."""
        return cls(
            _pairs(content["numbers"]),
            _pairs(content["spans"]),
            {name: tuple(digests) for name, digests in content["texts"].items()},
            tuple(content["complete"]),
            JointRange.from_json(content["joint"]),
        )


def _pairs(limits: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    return {name: (low, high) for name, (low, high) in limits.items()}


def is_watched(name: str) -> bool:
    """Tell whether a column is checked."""
    return name.startswith(WATCHED) or (name.startswith(CONTENT) and name not in NOT_WATCHED)


def within(name: str, values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return which values are in a range, which sizes may exceed by `REACH`; false for NaN."""
    if name.endswith("megavoxels"):
        low, high = low / REACH, high * REACH
    return (low <= values) & (values <= high)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
