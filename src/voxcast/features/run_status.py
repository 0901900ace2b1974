"""How the run of each row ended, by the columns that accounting has for it.

A run that failed has no time to learn from. The time of a run that was stopped, by its limit of
time or memory, is a lower bound.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.table import CENSORED_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

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
    for name in table:
        key = re.sub(r"[^a-z]", "", str(name).lower())
        if name in others or key not in EXIT_COLUMNS:
            continue
        codes = [_EXIT_CODE.match(str(cell).strip()) for cell in table[name]]
        is_failure = [
            code is not None and any(int(n) for n in code.groups() if n) for code in codes
        ]
        status[is_failure] = FAILED
    for name in table:
        key = re.sub(r"[^a-z]", "", str(name).lower())
        if name in others or key not in STATUS_COLUMNS:
            continue
        words = [_status_of(cell) for cell in table[name].astype(object)]
        recognised = [word for word in words if word is not None]
        if not recognised or len(recognised) < RECOGNISED * table[name].notna().sum():
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
