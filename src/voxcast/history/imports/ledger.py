"""The import itself: files in, one new part folder out, and an account of every record.

A part is a folder ``<date>-<source>-<number>`` like those of `voxcast.history.parts`, with
``import.json``, the account, beside its tables. What a part beside it has already is not imported
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
from voxcast.history.imports import columns, nextflow, sacct, slant, snakemake
from voxcast.history.parts import free_part, known_parts, load_history, sweep_partial, write_tables
from voxcast.history.run_table import PHASE_DTYPES, TRACE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
CLASH = (
    "is named as a run that has another time or outcome: "
    "two of its identity are not told apart (for a CSV table see identity and study of its map)"
)


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
        if column_map is None:
            raise ConfigError("needs a column map", kind, "give --map FILE; the README shows one")
        raise ConfigError("takes no column map, its columns are known", kind, "leave --map out")
    readings = [
        columns.read(path, app, column_map) if column_map else READERS[kind](path, app)
        for path in files
    ]
    with _held(into):
        sweep_partial(into)
        known = _known(into)
        rows, again = [], 0
        read = sum(reading.read for reading in readings)
        for reading in readings:
            for row, line in zip(reading.rows, reading.lines, strict=True):
                earlier = known.setdefault(row["cell_key"], row)
                if earlier is row:
                    rows.append(row)
                elif _agree(earlier, row):
                    again += 1
                else:
                    reading.refuse(line, CLASH)
        ledger = Ledger(
            kind,
            _hashes(readings),
            read,
            len(rows),
            again,
            [r for reading in readings for r in sorted(reading.skipped, key=_line)],
            [r for reading in readings for r in sorted(reading.bad, key=_line)],
        )
        return _write(into, ledger, rows, readings) if rows else ledger


def _known(into: Path) -> dict[str, Mapping[str, Any]]:
    """Return outcome and runtime of the runs that are there already, by their key."""
    if not known_parts(into):
        return {}
    try:
        rows = load_history([into])[["cell_key", "outcome", "runtime_s"]]
        return {str(row["cell_key"]): dict(row) for _, row in rows.iterrows()}
    except (OSError, ValueError, KeyError) as error:
        text = f"a part cannot be read: {one_line(error)[:120]}"
        raise TableError(text, into, "move that part out of the history") from error


def _write(
    into: Path, ledger: Ledger, rows: list[dict[str, Any]], readings: list[Reading]
) -> Ledger:
    new = {row["cell_key"] for row in rows}
    phases = [p for reading in readings for p in reading.phases if p["cell_key"] in new]
    traces = [t for reading in readings for t in reading.traces if t["cell_key"] in new]
    said = {"runs": len(rows), "imported_from": ledger.source, "files": ledger.files}
    part = free_part(into, ledger.source)
    ledger = Ledger(**{**vars(ledger), "part": part.name})
    account = asdict(ledger) | {"imported_at": datetime.now(UTC).isoformat(timespec="seconds")}
    for remark in (*account["skipped"], *account["bad"]):
        remark["file"] = Path(remark["file"]).name
    with atomic_folder(part) as partial:
        tables = frame_of(phases, PHASE_DTYPES), frame_of(traces, TRACE_DTYPES)
        write_tables(partial, frame_of(rows), *tables, said)
        write_json(partial / ACCOUNT_FILE, account)
    return ledger


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two records of one name tell of one run; exports round their times."""
    near = math.isclose(one["runtime_s"], other["runtime_s"], rel_tol=0.02, abs_tol=1.0)
    return near and one["outcome"] == other["outcome"]


def _hashes(readings: Sequence[Reading]) -> dict[str, str]:
    """Return the hash of each file by its name, numbered where several have the same."""
    found: dict[str, str] = {}
    for path in (path for reading in readings for path in (reading.path, *reading.beside)):
        same = sum(name.partition(" (")[0] == path.name for name in found)
        found[f"{path.name} ({same + 1})" if same else path.name] = sha256_file(path)
    return found


def _line(remark: Remark) -> int:
    return remark.line


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep a second import into the same folder waiting: it must see what this one adds."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder))
        except OSError as error:
            raise TableError(f"cannot be written to: {error.strerror}", folder) from error
        yield
