"""Effects of the levels of categorical columns that have too many for a column each.

They are the random effects of a linear mixed model of the target's logarithm: a ridge of the other
columns, and for each level a deviation that is shrunken to zero, the more the fewer rows the level
has (Robinson 1991, Statistical Science 6:15; as an encoding Micci-Barreca 2001, SIGKDD
Explorations 3:27). Ridge and effects are fitted in turns (backfitting, Buja, Hastie and Tibshirani
1989, Annals of Statistics 17:453).

A training row gets the effects of a fit without its group: with its own a model would trust them
more than it may in new rows, and an effect that only its group shows would count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDS = 5
ROUNDS = 20
PENALTY = 1.0  # of the ridge, on standardised columns


def effects_of(x: np.ndarray, codes: Sequence[np.ndarray], y: np.ndarray) -> list[np.ndarray]:
    """Return the effects of the levels of each categorical column.

    Parameters
    ----------
    x : ndarray, shape (n, columns)
        The other columns, without missing values.
    codes : sequence of ndarray of int, shape (n,)
        Level of each row by categorical column; -1 without one.
    y : ndarray, shape (n, outputs)
        Logarithms of the targets.

    Returns
    -------
    list of ndarray, shape (levels + 1, outputs)
        The last row, which -1 points to, is zero.
    """
    sizes = [int(code.max(initial=-1)) + 1 for code in codes]
    return _backfitted(x, codes, sizes, y)


def out_of_fold(
    x: np.ndarray, codes: Sequence[np.ndarray], y: np.ndarray, groups: Sequence[object]
) -> np.ndarray:
    """Return for each row the effects that are fitted without its group.

    Parameters
    ----------
    x, codes, y
        See `effects_of`.
    groups : sequence, length n
        Groups that no fold splits.

    Returns
    -------
    ndarray, shape (n, categorical columns × outputs)
    """
    sizes = [int(code.max(initial=-1)) + 1 for code in codes]
    numbers = np.unique([str(group) for group in groups], return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(int(numbers.max()) + 1)
    fold = order[numbers] % FOLDS
    columns = np.zeros((len(y), len(codes) * y.shape[1]))
    for number in range(FOLDS):
        held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        if len(held) and len(rest):
            effects = _backfitted(x[rest], [code[rest] for code in codes], sizes, y[rest])
            columns[held] = effect_columns(effects, [code[held] for code in codes])
    return columns


def effects_and_matrix(
    x: np.ndarray, codes: Sequence[np.ndarray], y: np.ndarray, groups: Sequence[object]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the effects for other rows, (levels, outputs) each, and the effects of `out_of_fold`.

    A level of one group has an effect but showed none in the training rows. Nothing was learned of
    effects beyond these, so the effects for other rows are clipped to them.
    """
    held_out = out_of_fold(x, codes, y, groups)
    lowest, highest = (
        np.split(end, len(codes)) for end in (held_out.min(axis=0), held_out.max(axis=0))
    )
    effects = [
        np.clip(effect[:-1], low, high)
        for effect, low, high in zip(effects_of(x, codes, y), lowest, highest, strict=True)
    ]
    return effects, held_out


def effect_columns(effects: Sequence[np.ndarray], codes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the effects of rows, shape (n, categorical columns × outputs)."""
    return np.hstack([effect[code] for effect, code in zip(effects, codes, strict=True)])


def _backfitted(
    x: np.ndarray, codes: Sequence[np.ndarray], sizes: Sequence[int], y: np.ndarray
) -> list[np.ndarray]:
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
