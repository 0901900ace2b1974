"""Rows to a matrix of numbers.

It needs numpy only, and its file is JSON. The most frequent levels of a category have a column of
zeros and ones. All levels are known by short hashes, which tell them from levels never seen.

Where a category has more levels than columns, all its levels have an effect on each target. They
are the random effects of a linear mixed model of the target's logarithm: a ridge of the other
columns, and for each level a deviation that is shrunken to zero, the more the fewer rows the level
has (Robinson 1991, Statistical Science 6:15). Ridge and effects are fitted in turns (backfitting,
Buja, Hastie and Tibshirani 1989, Annals of Statistics 17:453). A training row gets the effects of
a fit without its group: with its own a model would trust them more than it may in new rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.any_table import LOG, PREFIX, is_heavy
from voxcast.features.rows import CONTENT, rows_of
from voxcast.models.model_files import read_sealed, write_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row


DUPLICATE = 1 - 1e-6  # correlation of columns that carry the same information
MINIMUM_ROWS = 10  # fewer may correlate by chance
MAXIMUM_ENCODED = 30  # levels of one text with a column; each costs time and memory in every row
FOLDS, ROUNDS = 5, 20  # of the fit of effects
PENALTY = 1.0  # of its ridge, on standardised columns
DIGEST_BYTES = 6  # two of 20,000 levels agree with a probability of 1e-6


def split_columns(rows: Sequence[Row]) -> tuple[dict[str, np.ndarray], dict[str, list[object]]]:
    """Return the columns of numbers and of categories, each in the order of their names."""
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    numbers = sorted({name for row in rows for name in row} - texts)
    return (
        {name: numbers_of(rows, name) for name in numbers},
        {name: [row.get(name) for row in rows] for name in sorted(texts)},
    )


def informative(values: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Return the columns that are neither constant nor duplicates of an earlier one."""
    names: list[str] = []
    directions: list[np.ndarray] = []
    for name, column in values.items():
        finite = np.isfinite(column)
        if not finite.any() or np.ptp(column[finite]) <= 0:
            continue
        filled = np.where(finite, column, np.median(column[finite]))
        centred = filled - filled.mean()
        norm = float(np.linalg.norm(centred))
        direction = centred / norm if norm else centred
        comparable = len(column) >= MINIMUM_ROWS and finite.all() and bool(directions)
        if comparable and np.abs(np.stack(directions) @ direction).max() > DUPLICATE:
            continue
        names.append(name)
        directions.append(direction)
    return tuple(names)


def numbers_of(rows: Sequence[Row], name: str) -> np.ndarray:
    """Return a column of numbers; missing and non-finite values are NaN."""
    values = [row.get(name) for row in rows]
    try:
        column = np.array(values, dtype=float)  # None becomes NaN
    except (TypeError, ValueError):
        column = np.array([_number(value) for value in values])
    return np.where(np.isfinite(column), column, np.nan)


def _number(value: object) -> float:
    return np.nan if value is None or isinstance(value, str) else float(value)  # type: ignore[arg-type]


def encoded_and_all(values: Iterable[object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the levels that get a column, and all levels, both sorted; no text is missing.

    Examples
    --------
    >>> names = [f"n{k:02d}" for k in range(40)]
    >>> encoded, levels = encoded_and_all([*names, *names[10:]])
    >>> encoded == tuple(names[10:]), len(levels)
    (True, 40)
    """
    counts = Counter(value for value in values if isinstance(value, str))
    common = sorted(counts, key=lambda text: (-counts[text], text))[:MAXIMUM_ENCODED]
    return tuple(sorted(common)), tuple(sorted(counts))


def digest(text: str) -> str:
    """Return a short hash of a level, in hexadecimal."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=DIGEST_BYTES).hexdigest()


def codes(values: Iterable[object], digests: Sequence[str]) -> np.ndarray:
    """Return the position of each value's digest, (n,); -1 for unknown values and no texts."""
    position = {key: n for n, key in enumerate(digests)}
    return np.array(
        [position.get(digest(v), -1) if isinstance(v, str) else -1 for v in values], dtype=int
    )


NO_COLUMN = ("none.",)  # a prefix that no column has
FILE = "encoder.json"


@dataclass(frozen=True)
class Encoder:
    """The columns of a model, with their fitted transformers.

    An unseen text becomes zeros. A missing number becomes the training median, with an indicator
    column if it was missing in training rows too. Columns that were constant in training, or
    duplicates of another, are not in the matrix.

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
    levels : tuple of (text, tuple of (digest, effects))
        All values of the texts with more values than columns, with their effect on each output if
        they have columns.
    """

    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    medians: tuple[float, ...]
    incomplete: tuple[int, ...]
    categories: tuple[tuple[str, ...], ...]
    levels: tuple[tuple[str, tuple[tuple[str, tuple[float, ...]], ...]], ...] = ()

    @classmethod
    def fit(
        cls,
        rows: Sequence[Row],
        *,
        content: bool,
        only: Iterable[str] = (),
        on_logs: bool = False,
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
        """
        prefixes = tuple(only)
        values, texts = split_columns(rows)
        replaced = {f"{PREFIX}{name.removeprefix(LOG)}" for name in values if name.startswith(LOG)}
        heavy = {name for name in replaced & set(values) if on_logs and is_heavy(values[name])}
        numbers = informative(
            {
                name: column
                for name, column in values.items()
                if name not in heavy
                and (content or not name.startswith(CONTENT))
                and (not prefixes or name.startswith(prefixes))
            }
        )
        by_text = {name: encoded_and_all(column) for name, column in texts.items()}
        return cls(
            numbers,
            tuple(by_text),
            tuple(float(np.nanmedian(values[name])) for name in numbers),
            tuple(n for n, name in enumerate(numbers) if np.isnan(values[name]).any()),
            tuple(encoded for encoded, _ in by_text.values()),
            tuple(
                (name, tuple((digest(text), ()) for text in levels))
                for name, (encoded, levels) in by_text.items()
                if len(levels) > len(encoded)
            ),
        )

    @classmethod
    def fit_transform(
        cls,
        runs: pd.DataFrame,
        target_logs: np.ndarray,
        only: tuple[str, ...],
        *,
        content: bool,
        on_logs: bool,
    ) -> tuple[Encoder, np.ndarray]:
        """Learn the columns of runs, and encode them.

        Parameters
        ----------
        runs : DataFrame
            Training runs with their features and, if there are any, subjects.
        target_logs : ndarray, shape (n_runs, outputs)
            Logarithms of the targets, for the effects of texts with many values.
        only : tuple of str
            Names or prefixes of the numbers that a family may use: all if empty, none if
            `NO_COLUMN`.
        content, on_logs
            See `fit`.

        Returns
        -------
        encoder : Encoder
            The encoder of other rows.
        matrix : ndarray, shape (n_runs, columns)
            The matrix of the runs, each encoded without the effects of its own group.
        """
        rows = rows_of(runs)
        encoder = cls.fit(rows, content=content, only=only, on_logs=on_logs)
        if only == NO_COLUMN:
            return encoder, encoder.transform(rows)
        if only and not encoder.numbers:
            # Tables of other tools have none of the sizes that the family is restricted to.
            encoder = cls.fit(rows, content=content, on_logs=on_logs)
        groups = runs["subject"].astype(str).tolist() if "subject" in runs else range(len(rows))
        return encoder.with_effects(rows, target_logs, groups)

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
            The matrix of the training rows.
        """
        matrix = self.transform(rows)
        if not self.levels:
            return self, matrix
        truncated = tuple(f"{name}=" for name, _ in self.levels)
        others = matrix[:, [not name.startswith(truncated) for name in self.columns]]
        digests = {name: [key for key, _ in levels] for name, levels in self.levels}
        code = [codes([row.get(name) for row in rows], keys) for name, keys in digests.items()]
        sizes = [len(keys) for keys in digests.values()]
        held_out = _held_out_effects(others, code, sizes, targets, groups)
        # A level of one group showed no effect in the training rows, so effects are clipped to
        # those that the rows show.
        lowest, highest = (
            np.split(end, len(code)) for end in (held_out.min(axis=0), held_out.max(axis=0))
        )
        effects = level_effects(others, code, sizes, targets)
        levels = tuple(
            (name, tuple(zip(keys, map(tuple, np.clip(e[:-1], low, high).tolist()), strict=True)))
            for (name, keys), e, low, high in zip(
                digests.items(), effects, lowest, highest, strict=True
            )
        )
        return replace(self, levels=levels), np.hstack([matrix, held_out])

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
            return cls(**{name: _tuples(value) for name, value in content.items()})
        except TypeError as error:
            raise ModelError(f"not an encoder: {error}", folder / FILE) from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _held_out_effects(
    x: np.ndarray,
    codes: Sequence[np.ndarray],
    sizes: Sequence[int],
    y: np.ndarray,
    groups: Sequence[object],
) -> np.ndarray:
    """Return for each row the effects that are fitted without its group, (n, codes × outputs)."""
    numbers = np.unique([str(group) for group in groups], return_inverse=True)[1]
    fold = np.random.default_rng(0).permutation(int(numbers.max()) + 1)[numbers] % FOLDS
    columns = np.zeros((len(y), len(codes) * y.shape[1]))
    for number in range(FOLDS):
        held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        if len(held) and len(rest):
            effects = level_effects(x[rest], [code[rest] for code in codes], sizes, y[rest])
            columns[held] = np.hstack([e[c[held]] for e, c in zip(effects, codes, strict=True)])
    return columns


def level_effects(
    x: np.ndarray, codes: Sequence[np.ndarray], sizes: Sequence[int], y: np.ndarray
) -> list[np.ndarray]:
    """Return the effects of the levels of each categorical column.

    Parameters
    ----------
    x : ndarray, shape (n, columns)
        The other columns, without missing values.
    codes : sequence of ndarray of int, shape (n,)
        Level of each row by categorical column; -1 without one.
    sizes : sequence of int
        Number of levels of each categorical column.
    y : ndarray, shape (n, outputs)
        Logarithms of the targets.

    Returns
    -------
    list of ndarray, shape (levels + 1, outputs)
        The last row, which -1 points to, is zero.
    """
    spread = x.std(axis=0)
    varying = spread > 0
    columns = (x[:, varying] - x[:, varying].mean(axis=0)) / spread[varying]
    gram = columns.T @ columns + PENALTY * np.eye(columns.shape[1])
    solver = np.linalg.solve(gram, columns.T)
    effects = [np.zeros((size + 1, y.shape[1])) for size in sizes]
    for _ in range(ROUNDS):
        rest = y - sum(effect[code] for effect, code in zip(effects, codes, strict=True))
        line = rest.mean(axis=0) + columns @ (solver @ rest)
        for effect, code in zip(effects, codes, strict=True):
            others = sum(e[c] for e, c in zip(effects, codes, strict=True) if e is not effect)
            effect[:] = _shrunken(y - line - others, code, len(effect) - 1)
    return effects


def _shrunken(residuals: np.ndarray, code: np.ndarray, size: int) -> np.ndarray:
    """Return the best linear unbiased predictions of a one-way layout, shape (size + 1, outputs).

    The components of the variance follow the analysis of variance.
    """
    effects = np.zeros((size + 1, residuals.shape[1]))
    residuals, code = residuals[code >= 0], code[code >= 0]
    rows = np.bincount(code, minlength=size).astype(float)
    seen = rows > 0
    n, levels = len(code), int(seen.sum())
    if levels < 2 or n <= levels:
        return effects
    per_level = (n - (rows**2).sum() / n) / (levels - 1)
    for output, values in enumerate(residuals.T):
        means = np.bincount(code, values, size) / np.maximum(rows, 1)
        within = ((values - means[code]) ** 2).sum() / (n - levels)
        between = (rows * (means - values.mean()) ** 2)[seen].sum() / (levels - 1)
        variance = (between - within) / per_level
        if variance <= 0:
            continue
        shrinkage = rows / (rows + within / variance)
        centre = (shrinkage * means).sum() / shrinkage.sum()
        effects[:-1, output] = shrinkage * (means - centre)
    return effects
