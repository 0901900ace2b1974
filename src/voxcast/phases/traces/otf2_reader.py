"""Reads OTF2 archives, of EZTrace or Score-P, as a table of communication events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.traces.events import EventTable, Kind, joined_columns, typed_columns
from voxcast.phases.traces.otf2_callbacks import Code
from voxcast.phases.traces.otf2_records import Archive, Definitions

if TYPE_CHECKING:
    from pathlib import Path

# Regions that are events: calls of MPI and of input and output; others are computation.
EVENT_REGION = re.compile(
    r"MPI_\w+|f?(read|write|open|close|sync)(64)?|p(read|write)(v|64)?|readv|writev|lseek(64)?"
)
KINDS = {
    Code.SEND: Kind.SEND,
    Code.RECEIVE: Kind.RECEIVE,
    Code.RECEIVE_COMPLETE: Kind.RECEIVE,
    Code.COLLECTIVE: Kind.COLLECTIVE,
    Code.IO: Kind.LOCAL,
}
OUTSIDE_CALLS = {
    Code.SEND: "MPI_Send",
    Code.RECEIVE: "MPI_Recv",
    Code.RECEIVE_COMPLETE: "MPI_Irecv",
    Code.COLLECTIVE: "MPI_Collective",
    Code.IO: "input or output",
}
PLUGIN = "record it with the plugin of the MPI in use, e.g. `eztrace -t openmpi`"


def read_otf2(path: Path) -> EventTable:
    """Read an archive.

    Parameters
    ----------
    path : Path
        Its anchor file, ``NAME.otf2``.

    Returns
    -------
    EventTable
        Each call of MPI, input or output is an event. One with several messages, such as a
        ``MPI_Waitall``, is as many: the first has its time, the others are of no length at its
        end. A call without a message is local. Computation is in instructions where the archive
        counts them, else in nanoseconds between events.

    Raises
    ------
    RunError
        If it is no archive, its definitions are damaged, or it has no communication.
    """
    archive = Archive(path)
    try:
        reading = _Reading(archive.definitions)
        for location, records, problem in archive.records():
            reading.add(location, records, problem)
    finally:
        archive.close()
    return reading.table(path)


class _Reading:
    """Events of locations, turned into those of processes."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self.operations: dict[str, int] = {}
        self.missing: list[str] = []
        self.records = 0
        strings = definitions.strings
        groups = [group for _, group, _ in definitions.locations.values()]
        # Processes in the order of ranks, else as they are defined.
        of_ranks = [definitions.locations[ref][1] for ref in definitions.rank_locations]
        self.processes = list(dict.fromkeys([*of_ranks, *groups]))
        self.names = tuple(
            strings.get(definitions.location_groups.get(p, -1), f"process {p}")
            for p in self.processes
        )
        self.communicators = {ref: i for i, ref in enumerate(definitions.communicators)}
        members = [definitions.groups.get(g, []) for g in definitions.communicators.values()]
        self.members = [np.array(ranks, np.int64) for ranks in members]
        self._event_regions = np.array(
            [r for r, name in definitions.regions.items()
             if EVENT_REGION.fullmatch(strings.get(name, ""))], np.uint64,
        )  # fmt: skip
        self._parts: list[dict[str, np.ndarray]] = []
        self._spans: dict[int, tuple[int, int]] = {}

    def add(self, location: int, records: np.ndarray | None, problem: str) -> None:
        """Take the records of a location in."""
        name, group, _ = self._definitions.locations[location]
        title = self._definitions.strings.get(name, str(location))
        if problem:
            self.missing.append(f"{title}: {problem}")
        if records is None or not len(records):
            if not problem:
                self.missing.append(f"{title}: no events")
            return
        self.records += len(records)
        process = self.processes.index(group)
        time_ns = self._ns(records[:, 1])
        first_ns, last_ns = self._spans.get(process, (int(time_ns[0]), int(time_ns[-1])))
        self._spans[process] = min(first_ns, int(time_ns[0])), max(last_ns, int(time_ns[-1]))
        counts = np.bincount(records[:, 0].astype(np.int64), minlength=len(Code))
        for begun, ended, lacking in (
            (Code.RECEIVE_REQUEST, Code.RECEIVE_COMPLETE, "ends of nonblocking receives"),
            (Code.COLLECTIVE_BEGIN, Code.COLLECTIVE, "ends of nonblocking collectives"),
        ):
            if counts[begun] > counts[ended]:
                self.missing.append(f"{title}: {counts[begun] - counts[ended]} {lacking}")
        part = self._events(records, time_ns)
        part["process"] = np.full(len(part["start_ns"]), process)
        self._parts.append(typed_columns(part))

    def _ns(self, ticks: np.ndarray) -> np.ndarray:
        since = ticks.astype(np.int64) - self._definitions.offset
        if self._definitions.ticks_per_s == 1_000_000_000:
            return since
        ns: np.ndarray = np.rint(since * (1e9 / self._definitions.ticks_per_s)).astype(np.int64)
        return ns

    def _events(self, records: np.ndarray, time_ns: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of the events of a location, in their order."""
        code = records[:, 0].astype(np.int64)
        of_event = np.isin(records[:, 2], self._event_regions)
        enters = (code == Code.ENTER) & of_event
        leaves = (code == Code.LEAVE) & of_event
        # Calls that other calls make are part of them.
        depth = np.cumsum(enters.astype(np.int64) - leaves)
        # A leave without its enter, as where recording began within a call, ends nothing.
        floor = np.minimum(np.minimum.accumulate(depth), 0)
        leaves &= np.diff(floor, prepend=0) == 0
        depth -= floor
        call_rows = np.flatnonzero(enters & (depth == 1))
        leave_rows = np.flatnonzero(leaves & (depth == 0))
        # The last call of a location that was cut short has no end.
        unended = np.full(len(call_rows) - len(leave_rows), len(records) - 1)
        leave_rows = np.concatenate([leave_rows, unended])
        message_rows = np.flatnonzero(np.isin(code, list(KINDS)))
        call_of = np.searchsorted(call_rows, message_rows, side="right") - 1
        call_of[depth[message_rows] < 1] = -1
        within = call_of >= 0
        is_silent = np.ones(len(call_rows), bool)
        is_silent[call_of[within]] = False
        rows = np.concatenate([message_rows, call_rows[is_silent]])
        calls = np.concatenate([call_of, np.flatnonzero(is_silent)])
        order = np.argsort(rows, kind="stable")
        rows, calls = rows[order], calls[order]
        within = calls >= 0
        is_first = np.ones(len(rows), bool)
        is_first[1:] = (calls[1:] != calls[:-1]) | ~within[1:]
        start_rows, end_rows = rows.copy(), rows.copy()
        end_rows[within] = leave_rows[calls[within]]
        start_rows[within] = np.where(is_first, call_rows[calls], end_rows)[within]
        columns = self._content(records[rows], code[rows])
        columns["start_ns"], columns["end_ns"] = time_ns[start_rows], time_ns[end_rows]
        columns["operation"] = self._operation(records, rows, call_rows, calls)
        progress = self._instructions(records, code) if self._definitions.counters else time_ns
        before = np.concatenate([progress[:1], progress[end_rows[:-1]]])[: len(rows)]
        columns["computation"] = np.maximum(progress[start_rows] - before, 0)
        return columns

    def _content(self, records: np.ndarray, code: np.ndarray) -> dict[str, np.ndarray]:
        """Return kind, peer, tag, group and size; those of a call without a message are none."""
        kinds = np.full(len(Code), Kind.LOCAL)
        kinds[list(KINDS)] = list(KINDS.values())
        kind = kinds[code]
        is_message = (kind == Kind.SEND) | (kind == Kind.RECEIVE)
        is_collective = kind == Kind.COLLECTIVE
        group = np.full(len(records), -1)
        peer = np.full(len(records), -1)
        references, position = np.unique(records[:, 3], return_inverse=True)
        for i, reference in enumerate(references.tolist()):
            number = self.communicators.get(reference, -1)
            if number < 0:
                continue
            group[(position == i) & (is_message | is_collective)] = number
            ranks, members = records[:, 2], self.members[number]
            here = (position == i) & is_message & (ranks < len(members))
            peer[here] = members[ranks[here].astype(np.int64)]
        size = np.select(
            [is_message, is_collective, code == Code.IO],
            [records[:, 5], np.maximum(records[:, 4], records[:, 5]), records[:, 2]], 0,
        )  # fmt: skip
        tag = np.where(is_message, records[:, 4].astype(np.int64), -1)
        return {"kind": kind, "peer": peer, "tag": tag, "group": group, "size_bytes": size}

    def _operation(
        self, records: np.ndarray, rows: np.ndarray, call_rows: np.ndarray, calls: np.ndarray
    ) -> np.ndarray:
        """Return the numbers of the operations: the regions of calls, by their names."""
        within = calls >= 0
        key = np.where(within, 0, -1 - records[rows, 0].astype(np.int64))
        key[within] = records[call_rows[calls[within]], 2]
        keys, position = np.unique(key, return_inverse=True)
        numbers = []
        for reference in keys.tolist():
            if reference < 0:
                name = OUTSIDE_CALLS[Code(-1 - reference)]
            else:
                name = self._definitions.strings[self._definitions.regions[reference]]
            numbers.append(self.operations.setdefault(name, len(self.operations)))
        return np.array(numbers, np.int64)[position]

    @staticmethod
    def _instructions(records: np.ndarray, code: np.ndarray) -> np.ndarray:
        """Return the count of instructions at each record: the last that was read."""
        counted = code == Code.INSTRUCTIONS
        last = np.maximum.accumulate(np.where(counted, np.arange(len(records)), -1))
        counts: np.ndarray = np.where(last >= 0, records[last, 2].astype(np.int64), 0)
        if counted.any():
            counts[last < 0] = records[np.argmax(counted), 2]
        return counts

    def table(self, path: Path) -> EventTable:
        """Return the events of all locations, by process and, within it, by time."""
        if not self.records:
            then = f"the program was not traced; {PLUGIN}"
            raise RunError("has no events", path, then)
        if not sum(len(part["start_ns"]) for part in self._parts):
            raise RunError("has no communication, input or output", path, PLUGIN)
        columns = joined_columns(self._parts)
        # Locations come one after the other: the order of a process unless it has threads.
        process = columns["process"]
        if len(self._parts) > len(np.unique(process)):
            order = np.lexsort((columns["start_ns"], process))
        else:
            order = np.argsort(process, kind="stable")
        spans = [self._spans.get(i, (0, 0)) for i in range(len(self.processes))]
        start_ns, end_ns = np.array(spans, np.int64).T
        return EventTable(
            columns={name: column[order] for name, column in columns.items()},
            processes=self.names,
            operations=tuple(self.operations),
            groups=tuple(tuple(ranks.tolist()) for ranks in self.members),
            computation_unit="instructions" if self._definitions.counters else "elapsed_ns",
            start_ns=start_ns,
            end_ns=end_ns,
            source=str(path),
            missing=tuple(self.missing),
        )
