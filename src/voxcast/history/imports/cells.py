"""The cells of one record of a table; a cell that cannot be read is unknown and listed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from voxcast.errors import TableError, VoxcastError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = TypeVar("Value")
SHOWN_CHARACTERS = 40


@dataclass
class Cells:
    """Cells by column.

    Attributes
    ----------
    texts : mapping of str to str
        By the name of the column in lower case.
    titles : mapping of str to str
        Names of the columns as in the file, for messages.
    absent : frozenset of str
        Texts, in lower case, for a value that is not known.
    unread : list of str
        What is wrong with the cells that could not be read.
    """

    texts: Mapping[str, str]
    titles: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset({""})
    unread: list[str] = field(default_factory=list)

    def raw(self, name: str) -> str:
        """Return the text of a cell; empty if there is no such column."""
        return self.texts.get(name, "")

    def text(self, name: str) -> str:
        """Return the text of a cell; empty if the value is not known."""
        text = self.raw(name)
        return "" if text.lower() in self.absent else text

    def by_column(self) -> dict[str, str]:
        """Return all cells; those whose value is not known are empty."""
        return {name: self.text(name) for name in self.texts}

    def read(self, name: str, parse: Callable[[str], Value | None]) -> Value | None:
        """Return the parsed cell; None if it is not known or, which is listed, cannot be read."""
        text = self.text(name)
        if not text:
            return None
        try:
            return parsed(self.titles.get(name, name), text, parse)
        except TableError as error:
            self.unread.append(error.problem)
            return None


def parsed(title: str, text: str, parse: Callable[[str], Value]) -> Value:
    """Return ``parse(text)``, with column and text in the error.

    Raises
    ------
    TableError
        If the text cannot be parsed.
    """
    try:
        return parse(text)
    except VoxcastError as error:
        raise TableError(f"column {title}: {error.problem[:80]}") from error
    except (ValueError, OverflowError, OSError) as error:
        excerpt = repr(text[:SHOWN_CHARACTERS])
        raise TableError(f"column {title}: not a number or time: {excerpt}") from error


def finite(text: str) -> float:
    """Return a finite number.

    Raises
    ------
    ValueError
        If the text is none.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def integer(text: str) -> int:
    """Return an integer of at most 15 digits.

    Raises
    ------
    ValueError
        If the text is none.
    """
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 16:
        raise ValueError(text)
    return int(text)


def positive(value: float | None) -> float | None:
    """Return a measured amount, or None where zero means that it was not sampled.

    Examples
    --------
    >>> positive(2.0), positive(0.0), positive(None)
    (2.0, None, None)
    """
    return value if value else None
