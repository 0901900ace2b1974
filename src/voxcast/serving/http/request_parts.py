"""Many rows as several requests, each within what a server receives."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from voxcast.errors import RequestError
from voxcast.serving.rows.refusals import renumbered
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Row = dict[str, Any]

# Half of the limits of `voxcast.web`: texts become longer as JSON.
PART_BYTES, PART_ROWS, PART_EXPLAINED = 2**23, 10_000, 500
_VALUE_BYTES = 24


def encoded(row: Mapping[str, Any]) -> Row:
    """Return a row as JSON takes it: a small volume in base64."""
    volume = row.get(VOLUME)
    if isinstance(volume, bytes):
        return {**row, VOLUME: base64.b64encode(volume).decode()}
    return dict(row)


def predictions_in_parts(
    rows: Sequence[Row], predict: Callable[[list[Row]], list[Row]], *, explain: bool
) -> list[Row]:
    """Return the predictions of all rows, asked for in parts.

    Parameters
    ----------
    rows : sequence of dict
        As JSON has them.
    predict : callable
        Asks for the rows of a part.
    explain : bool
        Whether each row is explained, of which servers do fewer at a time.

    Raises
    ------
    RequestError
        If a row is refused; its number is that among all rows.
    """
    predictions: list[Row] = []
    for part in _parts(rows, PART_EXPLAINED if explain else PART_ROWS):
        try:
            predictions += predict(part)
        except RequestError as error:
            raise renumbered(error, len(predictions)) from None
    return predictions


def _parts(rows: Sequence[Row], most_rows: int) -> Iterator[list[Row]]:
    """Yield rows in order; there is one part at least, and a row in each."""
    part: list[Row] = []
    part_bytes = 0
    for row in rows:
        size = sum(
            len(name) + (len(value) if isinstance(value, str) else _VALUE_BYTES)
            for name, value in row.items()
        )
        if part and (part_bytes + size > PART_BYTES or len(part) == most_rows):
            yield part
            part, part_bytes = [], 0
        part.append(row)
        part_bytes += size
    yield part
