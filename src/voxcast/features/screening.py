"""Which columns of any table are left out as features, and which the user is asked about.

Names decide what is left out: names of measurements, outcomes, rows and moments. Names are split
at separators and capitals. Names of Slurm's accounting, Nextflow's trace, Snakemake's benchmarks,
the Standard Workload Format, GNU time and this project are listed. Words that inputs have too,
such as `duration`, `end`, `system` or `size`, tell nothing.

Of the columns that are used, the user is asked about those whose values rank the rows as the
target does, as a column does that is known only after the run. An input of a deterministic tool
does so too, and must be used: no value distinguishes the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError
from voxcast.features.any_table import (
    EXIT_COLUMNS,
    STATUS_COLUMNS,
    Columns,
    finite,
    spelled_as_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|%")

# Words that tell that a measurement is of something else than this run, or known before it.
BEFORE = _set(
    """
    req requested request limit timelimit reserved allocated alloc asked planned plan estimated
    estimate expected predicted previous prior last history mean median average input image scan
    audio video file header acquisition target
    """
)
_UNITS = _set(
    """
    s sec secs second seconds ms us ns m min mins minutes h hr hrs hour hours d days bytes b kb
    mb gb kib mib gib raw total sum max peak avg of in pct percent
    """
)
# Without separators and units.
MEASURED = _set(
    """
    elapsed elapsedraw elapsedtime wallclock wallclocktime runtime realtime exectime
    executiontime walltimeused usedwalltime timeused cputime cputimeraw totalcpu usercpu
    systemcpu avecpu mincpu cpuused usertime systime systemtime rss vmem vms vmsize uss pss
    rchar wchar syscr syscw readbytes writebytes diskread diskwrite averss maxrss maxvmsize
    avevmsize maxpages avepages maxdiskread maxdiskwrite avediskread avediskwrite consumedenergy
    consumedenergyraw exit exitcode exitstatus derivedexitcode returncode ioin ioout meanload
    cpuusage memusage memoryusage memused memoryused usedmemory cpuefficiency volctxt invctxt
    turnaround makespan hms energyused percentcpu
    """
)
_TIMES = _set(
    """
    s sec secs second seconds ms h hr hrs hour hours min minutes time
    """
)
_MEMORY = _set(
    """
    mem memory ram rss vmem
    """
)
_IDENTIFIERS = _set(
    """
    id ids uuid guid pid jobid taskid runid jobidraw rowid index idx row rownumber rownr serial
    job jobnumber runnumber unnamed
    """
)
_MOMENTS = _set(
    """
    start started end ended submit submitted submission eligible begin began finish finished
    completed date time timestamp created at when epoch unix
    """
)


def is_measurement(name: str) -> bool:
    """Return whether a name is used by accounting systems for a measurement of a run.

    Examples
    --------
    >>> [is_measurement(name) for name in ("MaxRSS", "cpu_s", "Elapsed", "ExitCode")]
    [True, True, True, True]
    >>> [is_measurement(name) for name in ("cpus", "req_walltime", "duration", "end", "system")]
    [False, False, False, False, False]
    """
    words = _words(name)
    if not BEFORE.isdisjoint(words):
        return False
    core = [word for word in words if word not in _UNITS]
    if "".join(words) in MEASURED or "".join(core) in MEASURED:
        return True
    if core in (["cpu"], ["core"], ["node"], ["gpu"]) and not _TIMES.isdisjoint(words):
        return True  # cpu_s, core_hours
    if words in (["%", "cpu"], ["%", "mem"]):
        return True
    return "peak" in words and not _MEMORY.isdisjoint(words)


def names_rows(name: str) -> bool:
    """Return whether a name is an identifier's: it ends in one, and does not count them.

    Examples
    --------
    >>> [names_rows(name) for name in ("JobID", "job_id", "Unnamed: 0", "index")]
    [True, True, True, True]
    >>> [names_rows(name) for name in ("width", "key_size", "index_rows", "hash_entries")]
    [False, False, False, False]
    """
    words = _words(name)
    return "".join(words) in _IDENTIFIERS or words[-1:] in (["id"], ["ids"], ["uuid"], ["guid"])


def names_moment(name: str) -> bool:
    """Return whether a name means a moment in time, and nothing else.

    Examples
    --------
    >>> [names_moment(name) for name in ("submit_time", "started_at", "created_voxels")]
    [True, True, False]
    """
    words = [word for word in _words(name) if word not in _UNITS]
    return bool(words) and _MOMENTS.issuperset(words)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name) if not word.isdigit()]


CLOSE_RANKS = 0.99  # rank correlation with the target from which a column is close
MIN_VALUES = 10  # distinct ones, for a rank correlation to mean something
ROWS_PER_NAME = 2  # a text with as many values as half of the rows or more names rows
UNIQUE = 0.9  # share of distinct values from which a number may name rows
EPOCH_S = 9e8  # the year 1998; smaller numbers are not moments


@dataclass(frozen=True)
class Screening:
    """What became of the columns of a table.

    Attributes
    ----------
    columns : Columns
        With the features that are used.
    left_out : dict of str to str
        Column to the reason, as a clause about it.
    requested : dict of str to str
        The same for columns that are used on request.
    close : dict of str to str
        Columns that are used, and not on request, that rank the rows as the target does; the
        reason as a clause about each.
    """

    columns: Columns
    left_out: dict[str, str]
    requested: dict[str, str]
    close: dict[str, str]


def screened(table: pd.DataFrame, columns: Columns, keep: Sequence[str] = ()) -> Screening:
    """Return which columns are used as features, which are left out, and which are close.

    Parameters
    ----------
    table : DataFrame
        Rows with a label.
    keep : sequence of str
        Columns to use regardless of their names and values.

    Raises
    ------
    TableError
        If a column to keep is not a feature of the table, or no column is left.
    """
    features = (*columns.numbers, *columns.texts)
    for name in keep:
        if name not in features:
            raise TableError("is not a feature of the table", name, "--keep names one")
    reasons = {
        name: reason
        for name in map(str, table)
        if name in features
        and (reason := _reason(name, table[name], is_number=name in columns.numbers)) is not None
    }
    left_out = {name: reason for name, reason in reasons.items() if name not in keep}
    used = replace(
        columns,
        numbers=tuple(name for name in columns.numbers if name not in left_out),
        texts=tuple(name for name in columns.texts if name not in left_out),
        logs=tuple(name for name in columns.logs if name not in left_out),
        units=tuple((name, unit) for name, unit in columns.units if name not in left_out),
    )
    if not used.numbers and not used.texts:
        name, reason = next(iter(left_out.items()))
        raise TableError(
            f"no feature is left without {', '.join(left_out)[:200]}", columns.target,
            f"--keep {name} uses one although it {reason}",
        )  # fmt: skip
    close = _close(table, used)
    requested = {name: reason for name, reason in (reasons | close).items() if name in keep}
    unrequested = {name: reason for name, reason in close.items() if name not in keep}
    return Screening(used, left_out, requested, unrequested)


def _close(table: pd.DataFrame, columns: Columns) -> dict[str, str]:
    """Return the numbers that rank the rows as the target does, with the reason."""
    from scipy import stats

    close = {}
    target = finite(table[columns.target])
    for name in columns.numbers:
        values = finite(table[name])
        has_value = np.isfinite(values)
        if len(np.unique(values[has_value])) < MIN_VALUES:
            continue
        rank = float(stats.spearmanr(values[has_value], target[has_value]).statistic)
        if abs(rank) >= CLOSE_RANKS:
            close[name] = f"ranks the rows as {columns.target} does (correlation {rank:.4f})"
    return close


def _reason(name: str, column: pd.Series, *, is_number: bool) -> str | None:
    """Return why a column is left out; None if it is used."""
    if is_measurement(name):
        return "is what accounting measures of a run"
    if re.sub(r"[^a-z]", "", name.lower()) in STATUS_COLUMNS | EXIT_COLUMNS:
        return "is the outcome of the run"
    cells = column.dropna()
    distinct = cells.nunique()
    if not is_number:
        if distinct * ROWS_PER_NAME < len(cells):
            return None
        return spelled_as_numbers(column) or f"names rows: {distinct} values in {len(cells)} rows"
    if distinct < max(2, UNIQUE * len(cells)):
        return None
    if names_moment(name) and cells.min() >= EPOCH_S:
        return "is a moment, of which a new row has another"
    if names_rows(name) and (cells == cells.round()).all():
        return f"names rows: {distinct} values in {len(cells)} rows"
    return None
