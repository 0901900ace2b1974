"""The name of a combination of two features, as ``out_of_range`` lists it.

It has no space, since serving joins names by spaces.
"""

from __future__ import annotations

import re

MARK = "×"
# A column of a table may hold the mark itself.
_BETWEEN = re.compile(rf"{MARK}(?=(?:allocation|parameter|column|header|content)\.)")


def combination(first: str, second: str) -> str:
    """Return the name of the combination of two features."""
    return f"{first}{MARK}{second}"


def members(name: str) -> tuple[str, ...]:
    """Return the features of a combination; of any other name, itself.

    Examples
    --------
    >>> members(combination("column.a×b", "column.c d")), members("column.a×b")
    (('column.a×b', 'column.c d'), ('column.a×b',))
    """
    return tuple(_BETWEEN.split(name))
