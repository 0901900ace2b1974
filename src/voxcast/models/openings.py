"""The book of openings: every time that held-out runs were used to judge models.

Errors on held-out runs are unbiased the first time. To change a model afterwards and judge
it on the same subjects has chosen it by them. So each opening is a line of one file that is only
ever added to, even if the opened table changes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import voxcast
from voxcast.errors import TableError
from voxcast.files import locked, sha256_of, write_text
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

BOOK = Path("results/openings.jsonl")  # of a project
PUBLISHED = Path(
    "published/openings.jsonl"
)  # published ones, in git; only `make publish` adds to it


@dataclass(frozen=True)
class Opening:
    """One line of the book.

    Attributes
    ----------
    table : str
        Name of the batch or of the table that was opened.
    rows_sha256 : str
        Hash of its runs, see `rows_sha256`.
    subjects : tuple of str
        The subjects that were judged on, sorted.
    by : str
        Stage, study or command that opened it.
    version : str
        Version of voxcast.
    commit : str
        Commit of the project, see `voxcast.commits.commit_of`; empty if unknown.
    opened_at : str
        Time in ISO 8601.
    note : str
        A remark for readers; the origin of a line that was entered later.
    """

    table: str
    rows_sha256: str
    subjects: tuple[str, ...]
    by: str
    version: str
    commit: str
    opened_at: str
    note: str = ""


def enter_opening(book: Path, table: str, runs: pd.DataFrame, by: str, commit: str) -> Opening:
    """Add a line to the book before the runs are looked at, and return it.

    Several processes may add lines at once. A line is there completely or not at all.

    Parameters
    ----------
    runs : DataFrame
        The runs that are opened, with ``cell_key``, ``subject`` and the targets.

    Raises
    ------
    TableError
        If the book cannot be read or written.
    """
    opening = Opening(
        table=table,
        rows_sha256=rows_sha256(runs),
        subjects=tuple(sorted(runs["subject"].astype(str).unique())),
        by=by,
        version=voxcast.__version__,
        commit=commit,
        opened_at=datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    line = json.dumps(asdict(opening)) + "\n"
    try:
        with locked(book.parent):
            lines = book.read_text(encoding="utf-8") if book.is_file() else ""
            if lines and not lines.endswith("\n"):
                lines += "\n"
            write_text(book, lines + line)
    except (OSError, ValueError) as error:
        fix = "runs are not opened without a line in it"
        raise TableError(f"cannot be written ({error})", book, fix) from None
    return opening


def read_openings(book: Path) -> list[Opening]:
    """Return the lines of the book, the oldest first; a missing book has none.

    Raises
    ------
    TableError
        If a line is damaged.
    """
    if not book.is_file():
        return []
    try:
        lines = book.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise TableError(f"cannot be read ({error})", book) from None
    openings = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            subjects = tuple(map(str, content.pop("subjects")))
            openings.append(Opening(subjects=subjects, **content))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            place = f"{book}, line {number}"
            fix = "restore it from the history of the project"
            raise TableError(f"is damaged ({error})", place, fix) from None
    return openings


def openings_of(project: Path) -> list[Opening]:
    """Return the openings of a project, published or only made here; each counts once."""
    openings = [*read_openings(project / PUBLISHED), *read_openings(project / BOOK)]
    return list(dict.fromkeys(openings))


def counts(openings: Collection[Opening], runs: pd.DataFrame) -> dict[str, int]:
    """Return how often these runs, and any of their subjects, were opened.

    Returns
    -------
    dict
        ``same_runs``, openings of exactly these runs; ``any_subject``, openings in which at least
        one of their subjects was judged on.
    """
    digest, subjects = rows_sha256(runs), set(runs["subject"].astype(str))
    return {
        "same_runs": sum(opening.rows_sha256 == digest for opening in openings),
        "any_subject": sum(not subjects.isdisjoint(opening.subjects) for opening in openings),
    }


def rows_sha256(runs: pd.DataFrame) -> str:
    """Return the hash of keys and measured targets of runs, in any order.

    Features do not count: other features of the same runs are judged on the same runs.
    """
    columns = ["cell_key", *TARGETS]
    rows = runs[columns].astype(dict.fromkeys(TARGETS, float)).sort_values("cell_key")
    return sha256_of([[str(key), *(v.hex() for v in values)] for key, *values in rows.to_numpy()])
