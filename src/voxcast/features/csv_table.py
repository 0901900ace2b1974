"""A CSV table with a header: cells without the spaces around them, numbers, and texts.

A column in which all cells are numbers, or hold a mark for a missing value such as ``-``, is one
of numbers. Versions are texts, since 1.10 is not 1.1; so is every column that a model learned as
texts, to the letter, in any other table too.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from voxcast.errors import TableError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    import pandas as pd


MISSING = ("-", "--", "?")  # in a column of numbers, beside what pandas takes for missing
TRUTH = {"true": True, "false": False}
_KINDS = {
    b"PAR1": "a Parquet file", b"PK\x03\x04": "a spreadsheet or an archive",
    b"\x1f\x8b": "compressed", b"\xff\xfe": "text in UTF-16", b"\xfe\xff": "text in UTF-16",
}  # fmt: skip
MOST = 0.8  # share of the cells
_QUANTITY = re.compile(r"[+-]?(?:\d+-)?\d[\d.,:' ]*(?:%|[a-zµ]{1,4})?", re.IGNORECASE)
_MARKS = {";": "';'", "\t": "a tab", "|": "'|'"}


def read_csv(path: Path, texts: Collection[str] | None = None) -> pd.DataFrame:
    """Read a CSV table with a header of unique names.

    Parameters
    ----------
    texts : collection of str, optional
        Columns to read as texts, from a model; by default columns of versions.

    Raises
    ------
    TableError
        If the file is missing or empty, is not a table with commas, or repeats a column name.
    """
    import pandas as pd

    try:
        with path.open("rb") as raw:
            start = raw.read(4)
        for magic, kind in _KINDS.items():
            if start.startswith(magic):
                raise TableError(f"is {kind}", path, "save it as CSV, in UTF-8")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header = next(csv.reader(stream, skipinitialspace=True), [])
        names = [name.strip() for name in header]
        duplicates = sorted({name for name in names if name and names.count(name) > 1})
        if duplicates:
            raise TableError(f"names the column {duplicates[0]} twice", path, "rename one of them")
        if not header:
            raise TableError("is empty", path)
        if len(header) == 1 and (mark := next((m for m in _MARKS if m in header[0]), None)):
            raise TableError(
                f"has {_MARKS[mark]} between its columns", path,
                "save it with commas, and with points in numbers",
            )  # fmt: skip
        is_text: Callable[[str], bool] = is_version if texts is None else set(texts).__contains__
        table = pd.read_csv(
            path, encoding="utf-8-sig", low_memory=False, skipinitialspace=True,
            dtype={raw: str for raw, name in zip(header, names, strict=True) if is_text(name)},
        )  # fmt: skip
    except UnicodeDecodeError as error:
        raise TableError(
            f"is not text in UTF-8 (byte {error.start})", path, "save it as CSV, in UTF-8"
        ) from None
    except (OSError, csv.Error, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path) from None
    if table.empty:
        raise TableError("has no rows", path)
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes the first columns for an index
        raise TableError(
            "has more columns in a row than in the header", path,
            "the first line must name the columns",
        )  # fmt: skip
    table.columns = table.columns.str.strip()
    for name in table.select_dtypes(exclude=["number", "bool"]):
        table[name] = _clean(table[name], as_text=is_text(str(name)))
    return table


def _clean(column: pd.Series, *, as_text: bool) -> pd.Series:
    """Return texts without the spaces around them, or numbers where all cells are."""
    import pandas as pd

    cells = column.map(lambda cell: str(cell).strip(), na_action="ignore")
    if as_text:
        return cells
    present = cells.mask(cells.isin(MISSING))
    if not present.notna().any():
        return cells
    truth = present.dropna().str.lower().map(TRUTH)
    numbers = truth.reindex(cells.index) if truth.notna().all() else present
    numbers = pd.to_numeric(numbers, errors="coerce")
    return cells if numbers[present.notna()].isna().any() else numbers.astype(float)


def spelled_as_numbers(column: pd.Series) -> str | None:
    """Return why a column is read as texts and not as numbers, as a clause, with the next step.

    Returns
    -------
    str or None
        None if its texts are not numbers, or are versions.
    """
    import pandas as pd

    cells = column.dropna().astype(str)
    if cells.empty or is_version(str(column.name)):
        return None
    is_number = pd.to_numeric(cells, errors="coerce").notna().to_numpy()
    odd = cells[~is_number]
    if odd.empty:
        return "is text for a cell in a row without a label: leave such cells empty"
    if is_number.mean() >= MOST:
        return f"is text for {odd.iloc[0][:20]!r}: leave such cells empty"
    if odd.map(lambda cell: bool(_QUANTITY.fullmatch(cell))).mean() >= MOST:
        return f"is text, such as {odd.iloc[0][:20]!r}: write plain numbers, all in one unit"
    return None


def is_version(name: str) -> bool:
    """Return whether a name means a version, which must not be read as a number: 1.10 is not 1.1.

    Examples
    --------
    >>> [is_version(name) for name in ("version", "toolVersion", "versions", "version_bytes")]
    [True, True, False, False]
    """
    return re.search(r"(version|(?<![A-Za-z])ver)[\W\d_]*$", name, re.IGNORECASE) is not None


def text_target(table: pd.DataFrame, target: str, numbers: Sequence[str]) -> TableError:
    """Return the error for a target that is text.

    Parameters
    ----------
    numbers : sequence of str
        Columns of numbers.
    """
    reason = spelled_as_numbers(table[target])
    if reason is None:
        cell = next(iter(table[target].dropna().astype(str)), "")
        reason = f"is text, such as {cell[:30]!r}: the target must be a column of numbers"
    problem, then = reason.split(": ", maxsplit=1)
    if numbers:
        then += f"; those of numbers are {', '.join(numbers)[:100]}"
    return TableError(problem, target, then)
