"""Communication events of a parallel run, in columns, read from a trace of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import numpy as np

from voxcast.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NS_PER_S = 1e9
# Larger values in a file are damage, and would exceed 64 bits in sums.
MAX_PROCESSES = 2**20
MAX_NS = 2**61  # 73 years
ComputationUnit = Literal["instructions", "cpu_ns", "elapsed_ns"]
CHROME_PATTERNS = ("*.json", "*.json.gz")
THEN = "give a folder of `voxcast phases record`, an .otf2 file, or traces of the PyTorch profiler"


class Kind(IntEnum):
    """Kinds of events, as far as their order between processes depends on them."""

    SEND = 0
    RECEIVE = 1
    COLLECTIVE = 2
    LOCAL = 3  # input and output, marks: ordered within its process only


EVENT_DTYPES: Mapping[str, type] = {
    "process": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "operation": np.int16,
    "computation": np.float64,
    "kind": np.int8,
    "peer": np.int32,
    "tag": np.int32,
    "group": np.int32,
    "size_bytes": np.int64,
}


@dataclass(frozen=True, eq=False)
class EventTable:
    """Events of all processes of a run, one array for each column.

    Rows are ordered by process and, within a process, as they were recorded there; clocks of
    different processes may disagree.

    Attributes
    ----------
    columns : mapping of str to ndarray, shape (events,)
        `EVENT_DTYPES`. `process` is an index into `processes`, `operation` one into `operations`,
        `group` one into `groups`; `peer` is the other process of a message, -1 elsewhere;
        `size_bytes` counts the bytes that this process sent or received; `computation` is the
        work between the previous event of the process and this one, in `computation_unit`.
    processes, operations : tuple of str
        Names; processes in the order of ranks.
    groups : tuple of tuple of int
        Processes of each communicator, or process group.
    computation_unit : str
        Instructions where they were counted, else CPU time, else the time between events.
    start_ns, end_ns : ndarray, shape (processes,)
        First and last instant of each process, by its clock.
    source : str
        Where the events were read, for messages.
    missing : tuple of str
        Gaps in the trace, such as the file of a rank.
    """

    columns: Mapping[str, np.ndarray]
    processes: tuple[str, ...]
    operations: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    computation_unit: ComputationUnit
    start_ns: np.ndarray
    end_ns: np.ndarray
    source: str = ""
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.columns["process"])

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column."""
        return self.columns[name]


def columns_of(rows: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return the columns of events given as whole numbers in the order of `EVENT_DTYPES`."""
    columns = np.array(rows, np.int64).reshape(-1, len(EVENT_DTYPES)).T
    return {
        name: column.astype(dtype)
        for (name, dtype), column in zip(EVENT_DTYPES.items(), columns, strict=True)
    }


def read_trace(path: Path) -> EventTable:
    """Read a trace.

    Parameters
    ----------
    path : Path
        A folder written by ``voxcast phases record``; the anchor file of an OTF2 archive, or the
        folder that holds it; a Chrome trace of the PyTorch profiler, or a folder of one a rank.

    Raises
    ------
    RunError
        If it is of another kind, or cannot be read.
    """
    if not path.exists():
        raise RunError("no such file or folder", path, THEN)
    anchors, chrome = [path], [path]
    if path.is_dir():
        anchors = [*sorted(path.glob("*.otf2")), *sorted(path.glob("*/*.otf2"))]
        chrome = sorted(file for pattern in CHROME_PATTERNS for file in path.glob(pattern))
        if len(anchors) > 1:
            names = ", ".join(str(anchor.relative_to(path)) for anchor in anchors)
            raise RunError(f"holds several archives: {names}", path, "name one")
        if not anchors and not chrome:
            raise RunError("holds no trace", path, THEN)
    if anchors and anchors[0].suffix == ".otf2":
        from voxcast.phases.otf2 import read_otf2

        return read_otf2(anchors[0])
    if not any(chrome[0].match(pattern) for pattern in CHROME_PATTERNS):
        raise RunError("is not a trace", path, THEN)
    from voxcast.phases.chrome import read_chrome

    return read_chrome(chrome)


def holds_trace(folder: Path) -> bool:
    """Return whether a folder is a trace of ``voxcast phases record`` or an OTF2 archive."""
    return any(folder.glob("rank-*.json")) or any(folder.glob("*.otf2"))
