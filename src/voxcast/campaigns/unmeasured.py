"""Which cells of a campaign are still to be measured, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.campaigns.cells import repeat_of
from voxcast.records import NOISY_REPEAT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from voxcast.records import Cell


def tried_again(
    keys: Iterable[str], rows: Mapping[str, Mapping[str, Any]], time_limit_s: float | None
) -> set[str]:
    """Return which of ``keys`` have a record that is worth another try.

    These are failed runs, and runs stopped at a shorter time than the limit is now. The user has
    started the campaign again and may have mended what they failed of.

    Parameters
    ----------
    rows : mapping
        Records by key.
    time_limit_s : float or None
        Time limit of a run; None if there is none.
    """

    def is_tried_again(row: Mapping[str, Any]) -> bool:
        was_short = row["limit_s"] is not None and (
            time_limit_s is None or row["limit_s"] < time_limit_s
        )
        return row["outcome"] == "failed" or (row["outcome"] == "timeout" and was_short)

    return {key for key in keys if key in rows and is_tried_again(rows[key])}


def missing_cells(
    cells: Mapping[str, Cell],
    rows: Mapping[str, Mapping[str, Any]],
    again: Collection[str] = (),
    *,
    noisy: bool = True,
) -> dict[str, Cell]:
    """Return the cells without a record, then those tried again, then repeats of noisy runs.

    ``rows`` are the records by key; those in ``again`` count as missing. With ``noisy=False``
    nothing is repeated.
    """
    missing = {key: cell for key, cell in cells.items() if key not in rows}
    missing |= {key: cell for key, cell in cells.items() if key in again and key in rows}
    for key, cell in cells.items() if noisy else ():
        if key in missing or cell.repeat >= NOISY_REPEAT:
            continue
        # A run that did not complete has no time to be measured better.
        if rows[key]["noisy"] and rows[key]["outcome"] == "completed":
            repeated = repeat_of(cell)
            if (name := repeated.key) not in rows:
                missing[name] = repeated
    return missing
