"""Communication events of a parallel run, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NS_PER_S = 1e9
# What a file may state: more is damage, and would exceed 64 bits in sums.
MAX_PROCESSES = 2**20
MAX_NS = 2**61  # 73 years
ComputationUnit = Literal["instructions", "cpu_ns", "elapsed_ns"]


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
    "kind": np.int8,
    "operation": np.int16,
    "peer": np.int32,
    "tag": np.int32,
    "group": np.int32,
    "size_bytes": np.int64,
    "computation": np.float64,
}


def typed_columns(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns of events as `EVENT_DTYPES` has them."""
    return {name: columns[name].astype(dtype) for name, dtype in EVENT_DTYPES.items()}


def joined_columns(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the columns of parts, of which there is one at least, one part after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in EVENT_DTYPES}


@dataclass(frozen=True, eq=False)
class EventTable:
    """Events of all processes of a run: one array a column, no object an event.

    Rows are ordered by process and, within a process, as they were recorded there; clocks of
    different processes may disagree.

    Attributes
    ----------
    columns : mapping of str to ndarray, shape (events,)
        `EVENT_DTYPES`. `process` is an index into `processes`, `operation` one into `operations`;
        `peer` is the other process of a send or receive, -1 elsewhere; `group` is an index into
        `groups`; `size_bytes` is what this process sent or received. `computation` is the work of
        the process between the end of its previous event and the start of this one, in
        `computation_unit`.
    processes : tuple of str
        Names, in the order of ranks.
    operations : tuple of str
        Names such as ``MPI_Allreduce``.
    groups : tuple of tuple of int
        Processes of each communicator, or process group.
    computation_unit : str
        Instructions if they were counted, else nanoseconds of CPU time, else nanoseconds between
        the events.
    start_ns, end_ns : ndarray, shape (processes,)
        First and last instant of each process, by its clock.
    source : str
        Where the events were read, for messages.
    missing : tuple of str
        What the trace lacks, e.g. the file of a rank; empty if it is whole.
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

    def __post_init__(self) -> None:
        """Hold the columns to their types and lengths."""
        if set(self.columns) != set(EVENT_DTYPES):
            raise ValueError(f"columns must be {list(EVENT_DTYPES)}, not {list(self.columns)}")
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
        for name, dtype in EVENT_DTYPES.items():
            if self.columns[name].dtype != dtype:
                raise ValueError(f"column {name} is {self.columns[name].dtype}, not {dtype}")
        if np.any(np.diff(self.columns["process"]) < 0):
            raise ValueError("events must be ordered by process")

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.columns["process"])

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column."""
        return self.columns[name]
