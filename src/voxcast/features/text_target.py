"""The error of a target column that is text: a column of numbers with a like name, or times."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, TableError
from voxcast.features.csv_table import spelled_as_numbers
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

ALIKE = 0.75  # share of equal letters of two names
MOST_NAMES = 3


def text_target(table: pd.DataFrame, target: str, numbers: Sequence[str]) -> TableError:
    """Return the error for a target that is text.

    Parameters
    ----------
    numbers : sequence of str
        Columns of numbers.
    """
    cells = [str(cell) for cell in table[target].dropna().unique()[:20]]
    problem, then = "is text", "the target must be a column of numbers"
    if cells and ":" in cells[0] and all(map(_is_clock, cells)):
        problem = f"is text: times such as {cells[0]} are not read"
        then = "write them as numbers of seconds"
    elif (reason := spelled_as_numbers(table[target])) is not None:
        problem, then = reason.split(": ", maxsplit=1)
    elif cells:
        problem = f"is text, such as {cells[0][:30]!r}"
    if names := alike(target, numbers):
        then += f", or take {' or '.join(names)}, which has numbers"
    return TableError(problem, target, then)


def alike(name: str, others: Sequence[str]) -> list[str]:
    """Return the names that contain ``name``, are part of it or differ little, the nearest first.

    Examples
    --------
    >>> alike("Elapsed", ["JobID", "ElapsedRaw", "MaxRSS"])
    ['ElapsedRaw']
    """
    key = _key(name)
    ratios = {other: SequenceMatcher(None, key, _key(other)).ratio() for other in others}
    near = [
        other for other, ratio in ratios.items()
        if ratio >= ALIKE or (min(len(key), len(_key(other))) > 2
                              and (key in _key(other) or _key(other) in key))
    ]  # fmt: skip
    return sorted(near, key=lambda other: -ratios[other])[:MOST_NAMES]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _is_clock(text: str) -> bool:
    try:
        slurm_seconds(text)
    except ConfigError:
        return False
    return True
