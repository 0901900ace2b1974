"""Any table of runs: how it is read, which columns are features, and which rows have a label.

A column of a CSV table in which all cells are numbers, or hold a mark for a missing value such as
``-``, is one of numbers. Versions are texts, since 1.10 is not 1.1; so is every column that a
model learned as texts, to the letter, in any other table too.

Columns become features ``column.NAME``. Numbers that span orders of magnitude also give
``column.log NAME``, which is a logarithm, or where a column of sizes has zeros or values below
zero, the inverse hyperbolic sine: it is that logarithm for large values, and passes zero. Text is
a category.

The columns of accounting tell how a run ended. A run that failed has no time to learn from. The
time of a run that was stopped, by its limit of time or memory, is a lower bound.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError, one_line
from voxcast.features.rows import CENSORED_OUTCOMES, members

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


COMPLETED, FAILED = "completed", "failed"
# Names without separators and capitals.
STATUS_COLUMNS = frozenset({"outcome", "state", "status", "jobstate", "jobstatus", "runstatus"})
EXIT_COLUMNS = frozenset({"exit", "exitcode", "exitstatus", "returncode", "derivedexitcode"})
RECOGNISED = 0.9  # share of the cells of a status column that must be words of a status
_WORDS = {
    COMPLETED: "completed complete ok success succeeded successful done finished cached cd passed",
    FAILED: "failed failure fail error aborted killed crashed f",
    "timeout": "timeout timedout to",
    "out_of_memory": "outofmemory oom oomkilled",
    "preempted": "preempted requeued",
    "stalled": "stalled",
    "cancelled": "cancelled canceled ca",
    "node_failure": "nodefailure nodefail bootfail launchfailed",
}
_STATUS_OF = {word: status for status, words in _WORDS.items() for word in words.split()}
_EXIT_CODE = re.compile(r"(-?\d+)(?:\.0+)?(?::(\d+))?$")


def statuses(table: pd.DataFrame, others: Collection[str | None] = ()) -> np.ndarray:
    """Return the status of each row: completed, failed, or one of `CENSORED_OUTCOMES`.

    A status column outranks an exit code, where every value but zero is a failure. A row of
    which nothing is told is completed, unless its column says of others that they are.

    Parameters
    ----------
    others : collection of str
        Columns that are something else, such as the target.
    """
    status = np.full(len(table), COMPLETED, dtype=object)
    by_key = [
        (re.sub(r"[^a-z]", "", str(name).lower()), table[name])
        for name in table
        if name not in others
    ]
    for codes in (column for key, column in by_key if key in EXIT_COLUMNS):
        matches = [_EXIT_CODE.match(str(cell).strip()) for cell in codes]
        status[[m is not None and any(int(n) for n in m.groups() if n) for m in matches]] = FAILED
    for column in (column for key, column in by_key if key in STATUS_COLUMNS):
        words = [_status_of(cell) for cell in column.astype(object)]
        recognised = [word for word in words if word is not None]
        if not recognised or len(recognised) < RECOGNISED * column.notna().sum():
            continue
        for n, word in enumerate(words):
            if word not in (None, COMPLETED):
                status[n] = word
            elif word is None and COMPLETED in recognised:
                status[n] = FAILED
    return status


def is_censored(status: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that were stopped before they completed."""
    return np.isin(status.astype(str), CENSORED_OUTCOMES)


def _status_of(cell: object) -> str | None:
    """Return the status that a cell states; `CANCELLED by 1000` and `TIMEOUT+` tell theirs.

    Examples
    --------
    >>> [_status_of(cell) for cell in ("CANCELLED by 1000", "NODE_FAIL", "Out of memory", "blue")]
    ['cancelled', 'node_failure', 'out_of_memory', None]
    """
    text = str(cell).lower().split(" by ")[0]
    return _STATUS_OF.get(re.sub(r"[^a-z]", "", text))


PREFIX, LOG = "column.", "column.log "
WIDE = 7.0  # from this ratio of largest to smallest value, the logarithm is a feature too
# From this ratio of the largest to the median magnitude, a column is heavy-tailed.
HEAVY = 20.0
MIN_ROWS = 10
LARGEST = 1e30  # estimators take single precision, which ends at 3e38
OUTCOME = "outcome"


@dataclass(frozen=True)
class Columns:
    """The roles of a table's columns; those in `logs` are also used as logarithms.

    ``units`` are the smallest magnitudes of columns with zeros or values below zero. ``machine``
    and ``sitting`` state where and when a row was measured.
    """

    target: str
    group: str | None
    ids: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    logs: tuple[str, ...]
    units: tuple[tuple[str, float], ...] = ()
    machine: str | None = None
    sitting: str | None = None

    @property
    def read_as_text(self) -> tuple[str, ...]:
        """The columns whose cells are texts even where they look like numbers."""
        return (*self.texts, *filter(None, (self.machine, self.sitting)))

    def unit(self, name: str) -> float:
        """Return the unit of a column's logarithm; 0 if all its values were above zero."""
        return dict(self.units).get(name, 0.0)

    def names(self, features: Sequence[str]) -> list[str]:
        """Return the columns that features are made from, and combinations of them, each once.

        Examples
        --------
        >>> columns = Columns("seconds", None, (), ("a b", "log c"), (), ("a b",))
        >>> columns.names(["column.a b", "column.log a b", "column.log c"])
        ['a b', 'log c']
        >>> columns.names(["column.a b×column.log c"])
        ['a b with log c']
        """
        by_feature = {f"{PREFIX}{name}": name for name in (*self.numbers, *self.texts)}
        by_feature |= {f"{LOG}{name}": name for name in self.logs}
        named = (
            by_feature.get(name) or " with ".join(by_feature.get(m, m) for m in members(name))
            for name in features
        )
        return list(dict.fromkeys(named))


def choose_columns(
    table: pd.DataFrame,
    target: str,
    group: str | None = None,
    ids: Sequence[str] = (),
    machine: str | None = None,
    sitting: str | None = None,
) -> Columns:
    """Assign roles to columns; all without another role are features, but the outcome.

    Raises
    ------
    TableError
        If a column is missing, the target is not numeric, or no feature is left.
    """
    roles = [name for name in (target, group, machine, sitting, *ids) if name is not None]
    for name in roles:
        if name not in table:
            raise TableError(
                "no such column", name, f"choose from {', '.join(map(str, table))[:300]}"
            )
    if sitting is not None and machine is None:
        raise TableError("is on a machine: name the column of machines, too", sitting)
    if not _is_number(table[target]):
        raise text_target(table, target, [str(n) for n in table if _is_number(table[n])])
    names = [str(n) for n in table if n not in {OUTCOME, *roles}]
    numbers = [n for n in names if _is_number(table[n])]
    texts = [n for n in names if n not in numbers and table[n].notna().any()]
    if not numbers and not texts:
        raise TableError("is the only usable column; there are no features", target)
    logs, units = [], []
    for name in numbers:
        values = finite(table[name])
        values = values[np.isfinite(values)]
        magnitudes = np.abs(values[values != 0])
        if not len(magnitudes):
            continue
        if values.min() > 0:
            if values.max() > WIDE * values.min():
                logs.append(name)
        elif is_heavy(values):
            logs.append(name)
            units.append((name, float(magnitudes.min())))
    return Columns(
        target, group, tuple(ids), tuple(numbers), tuple(texts), tuple(logs), tuple(units),
        machine, sitting,
    )  # fmt: skip


def is_heavy(values: np.ndarray) -> bool:
    """Whether a few values are so large that they decide the slope of a line.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Values that are not finite are left out.
    """
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)])
    return bool(len(magnitudes) and magnitudes.max() > HEAVY * np.median(magnitudes))


def logarithm(values: Any, unit: float) -> Any:
    """Return logarithms of numbers; with a unit their inverse hyperbolic sine in it.

    Without a unit, values that are not above zero have none.

    Examples
    --------
    >>> [round(float(logarithm(value, 2.0)), 3) for value in (-2.0, 0.0, 2.0, 2000.0)]
    [-0.881, 0.0, 0.881, 7.601]
    >>> float(logarithm(1.0, 0.0)), float(logarithm(0.0, 0.0))
    (0.0, -inf)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.arcsinh(np.asarray(values) / unit) if unit else np.log(values)


def exponential(log: float, unit: float) -> float:
    """Return the inverse of `logarithm`."""
    return float(np.sinh(log) * unit if unit else np.exp(log))


def feature_table(table: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the features of all rows, in their order.

    An infinite number is missing, and one beyond `LARGEST` counts as that.

    Raises
    ------
    TableError
        If a column is missing, or one of numbers has a text.
    """
    import pandas as pd

    features: dict[str, Any] = {}
    for name in columns.numbers:
        values = _numbers(table, name)
        features[f"{PREFIX}{name}"] = np.clip(values, -LARGEST, LARGEST)
        if name in columns.logs:
            logs = logarithm(values, columns.unit(name))
            features[f"{LOG}{name}"] = np.where(np.isfinite(logs), logs, np.nan)
    for name in columns.texts:
        if name not in table:
            raise TableError("no such column", name, "the model needs it")
        texts = table[name].astype(object)
        features[f"{PREFIX}{name}"] = texts.map(lambda v: None if pd.isna(v) else str(v))
    return pd.DataFrame(features, index=table.index)


def learnable(
    table: pd.DataFrame, columns: Columns, *, keep_failed: bool = False
) -> tuple[np.ndarray, dict[str, list[int]]]:
    """Return a mask of rows with a label, and the numbers of the excluded rows (from 1) by reason.

    A run that did not complete has no label: its value is a lower bound at most. See
    `voxcast.features.any_table`.

    Parameters
    ----------
    keep_failed : bool
        Whether the runs that did not complete have a label too.

    Raises
    ------
    TableError
        If fewer than `MIN_ROWS` have one, all have the same, or all are of one group.
    """
    values = finite(table[columns.target])
    reasons: dict[str, np.ndarray] = {"without a value": np.isnan(values)}
    reasons["not finite"] = ~np.isnan(values) & ~np.isfinite(values)
    reasons["zero or below"] = np.isfinite(values) & (values <= 0)
    extreme = (values > LARGEST) | ((values > 0) & (values < 1 / LARGEST))
    reasons["too large or too small to be one"] = np.isfinite(values) & extreme
    if not keep_failed:
        status = statuses(table, (columns.target, columns.group))
        for name in sorted(set(status) - {COMPLETED}):
            reasons[f"not completed ({name.replace('_', ' ')})"] = status == name
    if columns.group is not None:
        reasons["without a group"] = table[columns.group].isna().to_numpy()
    usable = ~np.logical_or.reduce(list(reasons.values()))
    left_out = {
        reason: (np.flatnonzero(mask) + 1).tolist()
        for reason, mask in reasons.items()
        if mask.any()
    }
    count = int(usable.sum())
    if count < MIN_ROWS:
        others = (
            "; ".join(f"{len(rows)} {reason}" for reason, rows in left_out.items()) or "no others"
        )
        raise TableError(
            f"{count} rows have a label ({others})", columns.target, f"{MIN_ROWS} are needed"
        )
    if np.ptp(values[usable]) == 0:
        raise TableError("has one value in all rows", columns.target, "nothing is to be learned")
    if columns.group is not None and table.loc[usable, columns.group].nunique() < 2:
        raise TableError("has one group", columns.group, "evaluation on unseen groups needs two")
    return usable, left_out


def finite(column: pd.Series) -> np.ndarray:
    """Return a column as float64."""
    values: np.ndarray = column.astype(float).to_numpy()
    return values


def _numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    import pandas as pd

    if name not in table:
        raise TableError("no such column", name, "the model needs it")
    column = table[name]
    values: np.ndarray = pd.to_numeric(column, errors="coerce").astype(float).to_numpy()
    texts = np.flatnonzero(np.isnan(values) & column.notna().to_numpy())
    if len(texts):
        text = str(column.iloc[texts[0]])[:40]
        raise TableError(
            f"{text!r} in row {texts[0] + 1} is not a number", name, "leave the cell empty"
        )
    return np.where(np.isfinite(values), values, np.nan)


def _is_number(column: pd.Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column) or is_bool_dtype(column))
