"""Rows to a matrix of numbers, and the range that the training rows cover.

It needs numpy only, and its file is JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.any_table import LOG, PREFIX, is_heavy
from voxcast.features.rows import CONTENT
from voxcast.models.families.joint_range import JointRange, joint_range_of
from voxcast.models.families.level_effects import effects_and_matrix
from voxcast.models.families.levels import codes, digest, encoded_and_all
from voxcast.models.families.number_ranges import is_watched, ranges_of, within
from voxcast.models.families.numeric_columns import informative, numbers_of
from voxcast.models.model_files import read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from voxcast.features.rows import Row

FILE = "encoder.json"


@dataclass(frozen=True)
class Encoder:
    """The columns, the fitted transformers and the training range.

    An unseen text becomes zeros. A missing number becomes the training median, with an indicator
    column if it was missing in training rows too. Columns that were constant in training, or
    duplicates of another, are not in the matrix; they are in `ranges`, so that `out_of_range`
    still checks them.

    Attributes
    ----------
    numbers, texts : tuple of str
        Columns of numbers and of categories.
    medians : tuple of float
        Training median of each number.
    incomplete : tuple of int
        Positions of the numbers that were missing in a training row.
    categories : tuple of tuple of str
        Values of each text that have a column.
    truncated : tuple of str
        Texts with more values than columns.
    ranges : tuple of (column, low, high)
        Ranges over the training rows, for the columns in `WATCHED`.
    levels : tuple of (text, tuple of (digest, effects))
        All values of the truncated texts, with their effect on each output if they have columns.
    complete : tuple of str
        Checked numbers, and texts, that no training row lacks: out of range where missing.
    joint : JointRange
        Combinations of columns with a range that the training rows cover.
    """

    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    medians: tuple[float, ...]
    incomplete: tuple[int, ...]
    categories: tuple[tuple[str, ...], ...]
    truncated: tuple[str, ...]
    ranges: tuple[tuple[str, float, float], ...]
    levels: tuple[tuple[str, tuple[tuple[str, tuple[float, ...]], ...]], ...] = ()
    complete: tuple[str, ...] = ()
    joint: JointRange = field(default_factory=JointRange)

    @classmethod
    def fit(
        cls,
        rows: Sequence[Row],
        *,
        content: bool,
        only: Iterable[str] = (),
        on_logs: bool = False,
        subjects: Sequence[str] = (),
    ) -> Encoder:
        """Learn the columns of ``rows``.

        Parameters
        ----------
        rows : sequence of Row
            Training rows.
        content : bool
            Whether the voxels' characteristics are used.
        only : iterable of str, optional
            Restrict the numbers to these names or prefixes.
        on_logs : bool
            Whether the target is a logarithm. Of a heavy-tailed column of any table its logarithm
            alone is then used: an exponential of its largest values is absurd.
        subjects : sequence of str, optional
            Subject of each row. Without them no combination of columns is out of range.
        """
        prefixes = tuple(only)
        texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
        names = sorted({name for row in rows for name in row} - texts)
        values = {name: numbers_of(rows, name) for name in names}
        replaced = {f"{PREFIX}{name.removeprefix(LOG)}" for name in names if name.startswith(LOG)}
        heavy = {name for name in replaced & set(names) if on_logs and is_heavy(values[name])}
        numbers = informative(
            {
                name: column
                for name, column in values.items()
                if name not in heavy
                and (content or not name.startswith(CONTENT))
                and (not prefixes or name.startswith(prefixes))
            }
        )
        levels_by_text = {
            name: encoded_and_all(row.get(name) for row in rows) for name in sorted(texts)
        }
        truncated = {
            name: levels
            for name, (encoded, levels) in levels_by_text.items()
            if len(levels) > len(encoded)
        }
        ranges = tuple(ranges_of(values))
        # A question from the header alone is asked without content, and lacks none.
        checked = [name for name, _, _ in ranges if content or not name.startswith(CONTENT)]
        return cls(
            numbers,
            tuple(levels_by_text),
            tuple(float(np.nanmedian(values[name])) for name in numbers),
            tuple(n for n, name in enumerate(numbers) if np.isnan(values[name]).any()),
            tuple(encoded for encoded, _ in levels_by_text.values()),
            tuple(truncated),
            ranges,
            tuple(
                (name, tuple((digest(text), ()) for text in levels))
                for name, levels in truncated.items()
            ),
            tuple(
                [name for name in checked if not np.isnan(values[name]).any()]
                + [n for n in levels_by_text if all(isinstance(row.get(n), str) for row in rows)]
            ),
            joint_range_of(values, sorted(filter(is_watched, values)), subjects),
        )

    def with_effects(
        self, rows: Sequence[Row], targets: np.ndarray, groups: Sequence[object]
    ) -> tuple[Encoder, np.ndarray]:
        """Add a column with the effects of their levels for each truncated text and output.

        Parameters
        ----------
        rows : sequence of Row
            Training rows.
        targets : ndarray, shape (n_rows, outputs)
            Logarithms of the targets.
        groups : sequence, length n_rows
            Group of each row, without which its effects in the matrix are estimated.

        Returns
        -------
        encoder : Encoder
            The encoder of other rows.
        matrix : ndarray, shape (n_rows, columns)
            The matrix of the training rows, see `voxcast.models.families.level_effects`.
        """
        matrix = self.transform(rows)
        if not self.levels:
            return self, matrix
        truncated = tuple(f"{name}=" for name in self.truncated)
        others = matrix[:, [not name.startswith(truncated) for name in self.columns]]
        digests = {name: [key for key, _ in levels] for name, levels in self.levels}
        code = [codes([row.get(name) for row in rows], keys) for name, keys in digests.items()]
        effects, held_out = effects_and_matrix(others, code, targets, groups)
        levels = tuple(
            (name, tuple(zip(keys, map(tuple, effect.tolist()), strict=True)))
            for (name, keys), effect in zip(digests.items(), effects, strict=True)
        )
        return replace(self, levels=levels), np.hstack([matrix, held_out])

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features outside the training range.

        Sizes may exceed it a little, see `number_ranges`; other numbers may not, categories must
        occur in training. A missing value is outside if no training row lacks it. Of a row in
        range of all of them, the combinations of two numbers that training does not cover are
        named, see `voxcast.features.combinations`.
        """
        features: list[list[str]] = [[] for _ in rows]
        complete = set(self.complete)
        for name, low, high in self.ranges:
            values = numbers_of(rows, name)
            inside = within(name, values, low, high)
            for n in np.flatnonzero(~inside & (np.isfinite(values) | (name in complete))):
                features[n].append(name)
        for name in self.texts:
            seen = self._digests.get(name)
            for n, row in enumerate(rows):
                text = row.get(name)
                is_new = seen is not None and isinstance(text, str) and digest(text) not in seen
                if is_new or (name in complete and not isinstance(text, str)):
                    features[n].append(name)
        together = self.joint_distances(rows)
        return [tuple(names or far) for names, far in zip(features, together, strict=True)]

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the distance of each row in combinations, see `JointRange.outside`."""
        values = {name: numbers_of(rows, name) for name in self.joint.sources}
        return self.joint.outside(values, len(rows))

    def transform(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the matrix of ``rows``, shape (n_rows, columns), float64."""
        columns = [numbers_of(rows, name) for name in self.numbers]
        missing = [np.isnan(column) for column in columns]
        columns = [
            np.where(is_missing, median, column)
            for column, is_missing, median in zip(columns, missing, self.medians, strict=True)
        ]
        columns += [missing[n] for n in self.incomplete]
        for name, categories in zip(self.texts, self.categories, strict=True):
            values = np.array([row.get(name) for row in rows], dtype=object)
            columns += [values == category for category in categories]
        for name, levels in self._effects:
            code = codes([row.get(name) for row in rows], [key for key, _ in levels])
            effects = np.array([effect for _, effect in levels] + [(0.0,) * len(levels[0][1])])
            columns += [*effects[code].T]
        matrix = np.empty((len(rows), len(columns)))
        for n, column in enumerate(columns):
            matrix[:, n] = column
        return matrix

    @property
    def medians_by_column(self) -> dict[str, float]:
        """Medians of the numbers in training."""
        return dict(zip(self.numbers, self.medians, strict=True))

    @property
    def knows_content(self) -> bool:
        """Whether the training rows had characteristics of the voxels that are used or checked."""
        names = (*self.numbers, *(name for name, _, _ in self.ranges))
        return any(name.startswith(CONTENT) for name in names)

    @property
    def columns(self) -> list[str]:
        """Names of the matrix's columns."""
        texts = zip(self.texts, self.categories, strict=True)
        return [
            *self.numbers,
            *(f"{self.numbers[n]} missing" for n in self.incomplete),
            *(f"{name}={text}" for name, categories in texts for text in categories),
            *(
                f"{name} effect {output}"
                for name, levels in self._effects
                for output in range(len(levels[0][1]))
            ),
        ]

    @cached_property
    def _digests(self) -> dict[str, frozenset[str]]:
        """Digests of the values in training, of the texts whose values are all on record."""
        listed = {name: {key for key, _ in levels} for name, levels in self.levels}
        return {
            name: frozenset({*map(digest, categories), *listed.get(name, ())})
            for name, categories in zip(self.texts, self.categories, strict=True)
            if name in listed or name not in self.truncated
        }

    @property
    def _effects(self) -> list[tuple[str, tuple[tuple[str, tuple[float, ...]], ...]]]:
        """The truncated texts with columns of effects."""
        return [(name, levels) for name, levels in self.levels if levels and levels[0][1]]

    def save(self, folder: Path) -> None:
        """Write ``encoder.json``."""
        write_sealed(folder / FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If the file is missing, damaged or of something else.
        """
        content = read_sealed(folder / FILE)
        try:
            joint = JointRange.from_json(content.pop("joint", asdict(JointRange())))
            return cls(**{name: _tuples(value) for name, value in content.items()}, joint=joint)
        except (KeyError, TypeError) as error:
            raise ModelError(f"not an encoder: {error}", folder / FILE) from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
