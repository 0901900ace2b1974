"""Tables of text on the terminal, whose columns are as wide as what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "


def text_table(rows: Sequence[Sequence[str]], align: str, indent: str = "") -> str:
    """Return rows as lines of aligned columns with a gap between each two.

    Parameters
    ----------
    rows : sequence of sequence of str
        All of one length, the heads of the columns among them.
    align : str
        One character per column: ``<`` for left, ``>`` for right.
    indent : str
        Before each line.

    Examples
    --------
    >>> print(text_table([("job", "memory"), ("a", "12.5 MB")], "<>"))
    job   memory
    a    12.5 MB
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        (
            indent
            + GAP.join(
                f"{cell:{side}{width}}"
                for cell, side, width in zip(row, align, widths, strict=True)
            )
        ).rstrip()
        for row in rows
    )
