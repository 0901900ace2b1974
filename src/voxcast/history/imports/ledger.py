"""Import of files into one new part of a history, with an account of every record.

A part is a folder ``<date>-<source>-<number>`` like those of `voxcast.history.parts`, with an
additional file ``import.json``, the account. Runs that are in an earlier part are not imported
again.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.files import atomic_folder, locked, sha256_file, write_json
from voxcast.history.imports import (
    columns,
    nextflow,
    sacct,
    slant,
    snakemake,
)
from voxcast.history.imports.name_patterns import name_runs
from voxcast.history.parts import (
    free_part,
    load_history,
    recorded_parts,
    sweep_partial,
    write_tables,
)
from voxcast.history.run_table import PHASE_DTYPES, TRACE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from voxcast.history.imports.column_map import ColumnMap
    from voxcast.history.imports.file_records import FileRecords, Remark
    from voxcast.history.imports.name_patterns import NamePattern
    from voxcast.history.imports.run_images import RunImages

READERS = {
    "sacct": sacct.read,
    "nextflow": nextflow.read,
    "snakemake": snakemake.read,
    "slant": slant.read,
}
KINDS = (*READERS, "csv")
ACCOUNT_FILE = "import.json"
# What a model of the runs needs; a source may not state it.
WANTED = ("peak_rss_bytes", "cpu_s", "cpus", "subject")
# Outcomes that had this name in earlier imports.
EARLIER_OUTCOMES = {"cancelled": "preempted", "node_failure": "preempted"}
CLASH = (
    "has the identity of a run with another time or outcome; "
    "make identities unique (for a CSV table by `identity` and `study` of its map)"
)


@dataclass(frozen=True)
class Ledger:
    """The account of one import: ``read`` is imported + duplicates + skipped + bad.

    Attributes
    ----------
    files : dict of str to str
        SHA-256 by file name, without folders, since the account is published with the history.
    duplicates : int
        Number of records that are in the history already, or occur twice.
    unread : list of Remark
        Fields of imported runs that could not be read, and are unknown.
    unknown : dict of str to int
        Number of imported runs without a known value, by column; see `WANTED`.
    with_image : int
        Number of imported runs that matched one of the images given.
    without_image : dict of str to int
        Number of imported runs that matched none of the images given, by reason.
    imported_without_image : int
        Number of duplicates that are in the history without their image; parts never change.
    part : str or None
        The folder that was written; None if there were no new runs.
    """

    source: str
    files: dict[str, str]
    read: int
    imported: int
    duplicates: int
    skipped: list[Remark] = field(default_factory=list)
    bad: list[Remark] = field(default_factory=list)
    unread: list[Remark] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    with_image: int = 0
    without_image: dict[str, int] = field(default_factory=dict)
    imported_without_image: int = 0
    part: str | None = None


def import_files(
    kind: str,
    files: Sequence[Path],
    into: Path,
    app: str | None = None,
    column_map: ColumnMap | None = None,
    *,
    app_pattern: NamePattern | None = None,
    subject_pattern: NamePattern | None = None,
    images: RunImages | None = None,
) -> Ledger:
    """Read ``files`` and add new runs to the folder ``into``.

    All files are read first; then all new runs are written, or none. With ``images`` the runs get
    their volumes, and ``into`` their headers and characteristics.

    Raises
    ------
    ConfigError
        If a column map is missing, or given for a kind that takes none; or if a pattern takes too
        long.
    TableError
        If a file is not of this kind, or the history cannot be read.
    """
    if (kind == "csv") != (column_map is not None):
        if column_map is None:
            raise ConfigError(
                "needs a column map", kind, "give --map FILE; see the documentation for an example"
            )
        raise ConfigError("takes no column map", kind, "leave out --map")
    sources = [
        columns.read(path, app, column_map) if column_map else READERS[kind](path, app)
        for path in files
    ]
    name_runs(sources, app_pattern, subject_pattern)
    with _locked(into):
        sweep_partial(into)
        run_by_key = _earlier_runs(into)
        on_record_without_image = {key for key, row in run_by_key.items() if not row["volume_id"]}
        rows, unread, duplicates, without_image = [], [], 0, {}
        imported_without_image = 0
        read = sum(records.read for records in sources)
        for records in sources:
            new_lines = set()
            for row, line in zip(records.rows, records.lines, strict=True):
                earlier = run_by_key.setdefault(row["cell_key"], row)
                if earlier is row:
                    rows.append(row)
                    new_lines.add(line)
                elif _same_run(earlier, row):
                    duplicates += 1
                    imported_without_image += row["cell_key"] in on_record_without_image
                else:
                    records.refuse(line, CLASH)
            unread += [r for r in sorted(records.unread, key=_line) if r.line in new_lines]
        if images is not None:
            without_image = images.match(rows)
        ledger = Ledger(
            kind,
            _hashes(sources),
            read,
            len(rows),
            duplicates,
            [r for records in sources for r in sorted(records.skipped, key=_line)],
            [r for records in sources for r in sorted(records.bad, key=_line)],
            unread,
            {
                column: count
                for column in WANTED
                if (count := sum(row[column] in (None, "", 0) for row in rows))
            },
            0 if images is None else len(rows) - sum(without_image.values()),
            without_image,
            imported_without_image if images is not None else 0,
        )
        if images is not None and ledger.with_image:
            images.add_to(into)  # before the runs, which need it
        return _write(into, ledger, rows, sources) if rows else ledger


def _earlier_runs(into: Path) -> dict[str, Mapping[str, Any]]:
    """Return outcome, runtime and volume of the runs in the history, by key."""
    if not recorded_parts(into):
        return {}
    try:
        rows = load_history([into])[["cell_key", "outcome", "runtime_s", "volume_id"]]
        return {str(row["cell_key"]): dict(row) for _, row in rows.iterrows()}
    except (OSError, ValueError, KeyError) as error:
        text = f"a part cannot be read: {one_line(error)[:120]}"
        raise TableError(text, into, "move that part out of the history") from error


def _write(
    into: Path, ledger: Ledger, rows: list[dict[str, Any]], sources: list[FileRecords]
) -> Ledger:
    new = {row["cell_key"]: row["volume_id"] for row in rows}
    phases = [
        {**p, "volume_id": new[p["cell_key"]]}
        for records in sources
        for p in records.phases
        if p["cell_key"] in new
    ]
    traces = [t for records in sources for t in records.traces if t["cell_key"] in new]
    provenance = {"runs": len(rows), "imported_from": ledger.source, "files": ledger.files}
    part = free_part(into, ledger.source)
    ledger = Ledger(**{**vars(ledger), "part": part.name})
    account = asdict(ledger) | {"imported_at": datetime.now(UTC).isoformat(timespec="seconds")}
    for remark in (*account["skipped"], *account["bad"], *account["unread"]):
        remark["file"] = Path(remark["file"]).name
    with atomic_folder(part) as partial:
        tables = frame_of(phases, PHASE_DTYPES), frame_of(traces, TRACE_DTYPES)
        write_tables(partial, frame_of(rows), *tables, provenance)
        write_json(partial / ACCOUNT_FILE, account)
    return ledger


def _same_run(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    """Whether two records of one identity describe one run; exports round their times."""
    similar_runtime = math.isclose(
        earlier["runtime_s"], later["runtime_s"], rel_tol=0.02, abs_tol=1.0
    )
    outcome = later["outcome"]
    return similar_runtime and earlier["outcome"] in (outcome, EARLIER_OUTCOMES.get(outcome))


def _hashes(sources: Sequence[FileRecords]) -> dict[str, str]:
    """Return the hash of each file by name; equal names are numbered."""
    hashes: dict[str, str] = {}
    for path in (path for records in sources for path in (records.path, *records.companions)):
        namesakes = sum(name.partition(" (")[0] == path.name for name in hashes)
        hashes[f"{path.name} ({namesakes + 1})" if namesakes else path.name] = sha256_file(path)
    return hashes


def _line(remark: Remark) -> int:
    return remark.line


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder, so that a second import waits until the runs of this one are added."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder))
        except OSError as error:
            raise TableError(f"cannot be written to: {error.strerror}", folder) from error
        yield
