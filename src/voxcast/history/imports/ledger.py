"""The import itself: files in, one new part folder out, and an account of every record.

A part is a folder ``<date>-<source>-<number>`` like those of `voxcast.history.parts`, with
``import.json``, the account, beside its tables. What a part beside it has already is not imported
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, TableError, one_line
from voxcast.files import sha256_file
from voxcast.history.imports import columns, nextflow, sacct, slant, snakemake
from voxcast.history.parts import PARTIAL, PHASES, RUNS, TRACES, known_keys
from voxcast.history.schema import PHASE_DTYPES, TRACE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.history.imports.column_map import ColumnMap
    from voxcast.history.imports.reading import Reading, Remark

READERS = {
    "sacct": sacct.read,
    "nextflow": nextflow.read,
    "snakemake": snakemake.read,
    "slant": slant.read,
}
KINDS = (*READERS, "csv")
ACCOUNT_FILE = "import.json"


@dataclass(frozen=True)
class Ledger:
    """The account of one import: ``read`` is imported + known + skipped + bad.

    Attributes
    ----------
    files : dict of str to str
        SHA-256 by name. Folders are left out: an account is published with the history.
    known : int
        Records that are in the history already, or came twice.
    part : str or None
        The folder that was written; None if there was nothing new.
    """

    source: str
    files: dict[str, str]
    read: int
    imported: int
    known: int
    skipped: list[Remark] = field(default_factory=list)
    bad: list[Remark] = field(default_factory=list)
    part: str | None = None


def import_files(
    kind: str,
    files: Sequence[Path],
    into: Path,
    app: str | None = None,
    column_map: ColumnMap | None = None,
) -> Ledger:
    """Read ``files`` and add what is new to the folder ``into``.

    Nothing is written before all files were read, and then all of it or nothing.

    Raises
    ------
    ConfigError
        If the kind needs a column map and there is none, or the other way round.
    TableError
        If a file is not of this kind, or the history cannot be read.
    """
    if (kind == "csv") != (column_map is not None):
        raise ConfigError(
            "a CSV table needs a column map, and other kinds take none", kind, "see --map"
        )
    readings = [
        columns.read(path, app, column_map) if column_map else READERS[kind](path, app)
        for path in files
    ]
    with _locked(into):
        for left in into.glob(PARTIAL + "*"):  # of an import that was killed
            shutil.rmtree(left)
        known = _known(into)
        rows, again = [], 0
        for row in (row for reading in readings for row in reading.rows):
            if row["cell_key"] in known:
                again += 1
            else:
                known.add(row["cell_key"])
                rows.append(row)
        ledger = Ledger(
            kind,
            {reading.path.name: sha256_file(reading.path) for reading in readings},
            sum(reading.read for reading in readings),
            len(rows),
            again,
            [r for reading in readings for r in sorted(reading.skipped, key=_line)],
            [r for reading in readings for r in sorted(reading.bad, key=_line)],
        )
        return _write(into, ledger, rows, readings) if rows else ledger


def _known(into: Path) -> set[str]:
    try:
        return known_keys(into)
    except (OSError, ValueError, KeyError) as error:
        text = f"a part cannot be read: {one_line(error)[:120]}"
        raise TableError(text, into, "move that part out of the history") from error


def _write(
    into: Path, ledger: Ledger, rows: list[dict[str, Any]], readings: list[Reading]
) -> Ledger:
    now = datetime.now(UTC)
    new = {row["cell_key"] for row in rows}
    partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=into))
    try:
        phases = [p for reading in readings for p in reading.phases if p["cell_key"] in new]
        traces = [t for reading in readings for t in reading.traces if t["cell_key"] in new]
        runs = frame_of(rows)
        runs.attrs["provenance"] = {
            "runs": len(rows), "imported_from": ledger.source, "files": ledger.files
        }  # fmt: skip
        runs.to_parquet(partial / RUNS, index=False, compression="zstd")
        frame_of(phases, PHASE_DTYPES).to_parquet(partial / PHASES, index=False)
        frame_of(traces, TRACE_DTYPES).to_parquet(partial / TRACES, index=False)
        part = _free(into, f"{now.date().isoformat()}-{ledger.source}")
        ledger = Ledger(**{**vars(ledger), "part": part.name})
        account = asdict(ledger) | {"imported_at": now.isoformat(timespec="seconds")}
        for remark in (*account["skipped"], *account["bad"]):
            remark["file"] = Path(remark["file"]).name
        (partial / ACCOUNT_FILE).write_text(json.dumps(account, indent=1) + "\n", "utf-8")
        for path in partial.iterdir():
            with path.open("rb") as written:
                os.fsync(written.fileno())
        partial.chmod(0o755)
        partial.rename(part)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return ledger


def _line(remark: Remark) -> int:
    return remark.line


def _free(into: Path, stem: str) -> Path:
    number = 1
    while (into / f"{stem}-{number}").exists():
        number += 1
    return into / f"{stem}-{number}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep a second import into the same folder waiting: it must see what this one adds."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise TableError(f"cannot be written to: {error.strerror}", folder) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
