"""Reads OTF2 archives of EZTrace or Score-P by the low-level bindings of the package ``otf2``.

The high-level reader of that package refuses archives of EZTrace 2.0, which repeat definitions.
Here the first definition of a reference counts, and events are made as the C library hands over
the records of a location, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.events import MAX_NS, EventTable, Kind, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INSTRUCTION_COUNTERS = ("PAPI_TOT_INS", "perf::INSTRUCTIONS", "instructions")
# Calls of MPI and of input and output are events; other regions are computation.
EVENT_REGION = re.compile(
    r"MPI_\w+|f?(read|write|open|close|sync)(64)?|p(read|write)(v|64)?|readv|writev|lseek(64)?"
)
READ_AT_ONCE = 1 << 20
END_OF_FILE = b"\x02\x01"
PLUGIN = "record it with the plugin of the MPI in use, e.g. `eztrace -t openmpi`"
CUT = "the archive is cut short or its .def file is missing; record it again"
# The reference is the first argument of each; ClockProperties has none.
DEFINITIONS = (
    "String", "Region", "LocationGroup", "Location", "Group", "Comm", "ClockProperties",
    "MetricMember", "MetricClass",
)  # fmt: skip
# Records that matter, with the operation of an event outside of a call.
RECORDS = {
    "Enter": "", "Leave": "", "Metric": "", "MpiIrecvRequest": "", "MpiCollectiveBegin": "",
    "MpiSend": "MPI_Send", "MpiIsend": "MPI_Send", "MpiRecv": "MPI_Recv", "MpiIrecv": "MPI_Irecv",
    "MpiCollectiveEnd": "MPI_Collective", "IoOperationComplete": "input or output",
}  # fmt: skip
UNENDED = (
    ("MpiIrecvRequest", "MpiIrecv", "ends of nonblocking receives"),
    ("MpiCollectiveBegin", "MpiCollectiveEnd", "ends of nonblocking collectives"),
)
NO_MESSAGE = (Kind.LOCAL, -1, -1, -1, 0)  # kind, peer, tag, group, bytes


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
        ``MPI_Waitall``, is as many: the first has its time, the rest have no length at its end.
        A call without a message is local. Computation is in instructions where the archive
        counts them, else in nanoseconds between events.

    Raises
    ------
    RunError
        If it is damaged, or has no communication.
    """
    import _otf2

    if _is_cut(path.with_suffix(".def")):
        raise RunError("its definitions are cut off", path, CUT)
    try:
        handle = _otf2.Reader_Open(str(path))
        try:
            archive = _Archive(_otf2, handle)
            locations = _read_locations(path, _otf2, handle, archive)
        finally:
            _otf2.Reader_Close(handle)
    except _otf2.Error as error:
        raise RunError(f"cannot be read as an OTF2 archive: {error}", path, CUT) from None
    n_processes = len(archive.processes)
    start_ns, end_ns = np.full(n_processes, MAX_NS), np.full(n_processes, -MAX_NS)
    for location in locations:
        n = location.process
        start_ns[n] = min(start_ns[n], location.first_ns)
        end_ns[n] = max(end_ns[n], location.now_ns)
    is_empty = start_ns > end_ns
    if is_empty.all():
        raise RunError("has no events", path, f"the program was not traced; {PLUGIN}")
    rows = [row for location in locations for row in location.rows]
    if not rows:
        raise RunError("has no communication, input or output", path, PLUGIN)
    columns = columns_of(rows)
    # Locations come one after the other, which is the order of a process unless it has threads.
    keys = ("start_ns", "process") if len(locations) > n_processes else ("process",)
    order = np.lexsort([columns[name] for name in keys])
    return EventTable(
        columns={name: column[order] for name, column in columns.items()},
        processes=tuple(
            archive.name("LocationGroup", ref, f"process {ref}") for ref in archive.processes
        ),
        operations=tuple(archive.operations),
        groups=tuple(tuple(members) for _, members in archive.groups.values()),
        computation_unit="instructions" if archive.counters else "elapsed_ns",
        start_ns=np.where(is_empty, 0, start_ns),
        end_ns=np.where(is_empty, 0, end_ns),
        source=str(path),
        missing=tuple(text for location in locations for text in location.missing()),
    )


def _is_cut(path: Path) -> bool:
    """Return whether a file lacks its end, beyond which the library would read earlier data."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-min(len(END_OF_FILE), path.stat().st_size), os.SEEK_END)
        return file.read() != END_OF_FILE


def _callbacks(otf2: Any, reader: str, functions: Mapping[str, Callable[..., None]]) -> Any:
    """Return callbacks that hand each record to the function of its name."""
    callbacks = getattr(otf2, f"{reader}Callbacks_New")()
    for name, function in functions.items():
        getattr(otf2, f"{reader}Callbacks_Set{name}Callback")(callbacks, function)
    return callbacks


class _Archive:
    """Definitions of an archive.

    Attributes
    ----------
    kept : dict
        Arguments by kind and reference.
    processes : dict of int to int
        Number of each process by the reference of its group of locations: in the order of ranks,
        else of definition.
    groups : dict of int to (int, list of int)
        Number and ranks of each communicator, by its reference.
    counters : dict of int to int
        Position of the instruction counter among the values of a metric.
    regions : dict of int to str
        Names of the regions that are events.
    operations : dict of str to int
        Numbers of the operations seen so far.
    """

    def __init__(self, otf2: Any, handle: Any) -> None:
        self.kept: dict[str, dict[int, tuple[Any, ...]]] = {name: {} for name in DEFINITIONS}
        rank_locations: list[int] = []

        def keep(name: str) -> Callable[..., None]:
            def callback(_data: Any, ref: int, *values: Any) -> None:
                if name == "Group" and values[1] == otf2.GROUP_TYPE_COMM_LOCATIONS:
                    # EZTrace gives it the reference of a communicator's group.
                    rank_locations.extend(values[-1])
                else:
                    self.kept[name].setdefault(ref, values)

            return callback

        otf2.Reader_SetSerialCollectiveCallbacks(handle)
        functions = {name: keep(name) for name in DEFINITIONS}  # must outlive the reading
        callbacks = _callbacks(otf2, "GlobalDefReader", functions)
        reader = otf2.Reader_GetGlobalDefReader(handle)
        otf2.Reader_RegisterGlobalDefCallbacks(handle, reader, callbacks, None)
        otf2.GlobalDefReaderCallbacks_Delete(callbacks)
        otf2.Reader_ReadAllGlobalDefinitions(handle, reader)
        groups_of_locations = {ref: values[3] for ref, values in self.kept["Location"].items()}
        in_order = [ref for ref in rank_locations if ref in groups_of_locations]
        groups = dict.fromkeys(
            groups_of_locations[ref] for ref in [*in_order, *groups_of_locations]
        )
        self.processes = {group: number for number, group in enumerate(groups)}
        self.groups = {
            ref: (number, self.kept["Group"].get(values[1], ([],))[-1])
            for number, (ref, values) in enumerate(self.kept["Comm"].items())
        }
        self.counters = {
            ref: position
            for ref, (members, *_) in self.kept["MetricClass"].items()
            for position, member in enumerate(members)
            if self.name("MetricMember", member) in INSTRUCTION_COUNTERS
        }
        names = {ref: self.name("Region", ref) for ref in self.kept["Region"]}
        self.regions = {ref: name for ref, name in names.items() if EVENT_REGION.fullmatch(name)}
        self.operations: dict[str, int] = {}
        clocks = self.kept["ClockProperties"] or {1_000_000_000: (0,)}
        self._ticks_per_s, (self._offset, *_) = next(iter(clocks.items()))

    def name(self, kind: str, ref: int, default: str = "") -> str:
        """Return the name of a region, location, group of locations, or metric."""
        string = self.kept[kind].get(ref, (-1,))[0]
        return str(self.kept["String"].get(string, (default,))[0])

    def ns(self, ticks: int) -> int:
        """Return the time of a record in nanoseconds."""
        ns = (ticks - self._offset) * 1_000_000_000 // self._ticks_per_s
        return int(max(-MAX_NS, min(ns, MAX_NS)))


class _Location:
    """A thread of a process, whose records become events one after the other.

    Attributes
    ----------
    process : int
        Number of the process.
    rows : list of tuple
        The events, see `voxcast.phases.events.columns_of`.
    first_ns, now_ns : int
        Time of the first and of the last record; the wrong way round without any.
    problem : str
        Why there are no more events, if known.
    """

    def __init__(self, archive: _Archive, ref: int, double: Any) -> None:
        self._archive, self._double = archive, double
        self._title = archive.name("Location", ref, str(ref))
        self.process = archive.processes[archive.kept["Location"][ref][3]]
        self.rows: list[tuple[int, ...]] = []
        self.first_ns, self.now_ns = MAX_NS, -MAX_NS
        self.problem = ""
        self._counts: Counter[str] = Counter()
        # Instructions so far, or time where none are counted; also at the end of the event before.
        self._progress: int | None = None
        self._progress_before: int | None = None
        self._depth = 0  # calls made by other calls are part of these
        self._call: tuple[str, int, int | None] = ("", 0, 0)  # operation, start, progress there
        self._messages: list[tuple[int, ...]] = []  # of the call

    def missing(self) -> list[str]:
        """Return what the records lack."""
        texts = [self.problem or "no events"] if self.problem or not self._counts else []
        texts += [
            f"{self._counts[begun] - self._counts[ended]} {ends}"
            for begun, ended, ends in UNENDED
            if self._counts[begun] > self._counts[ended]
        ]
        return [f"{self._title}: {text}" for text in texts]

    def take(
        self, name: str, _location: int, ticks: int, _at: int, _data: Any, _attributes: Any,
        *values: Any,
    ) -> None:  # fmt: skip
        """Take a record."""
        regions, groups, counters = (
            self._archive.regions, self._archive.groups, self._archive.counters,
        )  # fmt: skip
        self.now_ns = self._archive.ns(ticks)
        if not self._counts:
            self.first_ns = self.now_ns
        self._counts[name] += 1
        if not counters:
            self._advance(self.now_ns)
        match name, values:
            case "Metric", (metric, types, numbers) if metric in counters:
                number, kind = numbers[counters[metric]], types[counters[metric]]
                count = number.floating_point if kind == self._double else number.unsigned_int
                self._advance(int(count) if 0 <= count < MAX_NS else 0)
            case "Enter", (region,) if region in regions:
                if not self._depth:
                    self._call = regions[region], self.now_ns, self._progress
                self._depth += 1
            # A leave without its enter, as where recording began within a call, ends nothing.
            case "Leave", (region,) if region in regions and self._depth:
                self._depth -= 1
                if not self._depth:
                    self._end_call()
            case "MpiSend" | "MpiIsend" | "MpiRecv" | "MpiIrecv", (peer, ref, tag, size, *_):
                group, members = groups.get(ref, (-1, []))
                peer = members[peer] if peer < len(members) else -1
                kind = Kind.SEND if name.lower().endswith("send") else Kind.RECEIVE
                self._see(name, (kind, peer, tag, group, min(size, MAX_NS)))
            case "MpiCollectiveEnd", (_, ref, _, sent, received):
                size = min(max(sent, received), MAX_NS)
                self._see(name, (Kind.COLLECTIVE, -1, -1, groups.get(ref, (-1,))[0], size))
            case "IoOperationComplete", (_, size, _):
                # The largest number of all: unknown.
                self._see(name, (Kind.LOCAL, -1, -1, -1, size if size < MAX_NS else 0))

    def end(self) -> None:
        """End the call that goes on where the records stop, if there is one."""
        if self._depth:
            self._end_call()

    def _end_call(self) -> None:
        operation, start_ns, progress = self._call
        for message in self._messages or [NO_MESSAGE]:
            self._add(operation, start_ns, progress, message)
            start_ns, progress = self.now_ns, self._progress
        self._messages = []

    def _advance(self, progress: int) -> None:
        if self._progress is None:
            self._progress_before = progress
        self._progress = progress

    def _see(self, name: str, message: tuple[int, ...]) -> None:
        if self._depth:
            self._messages.append(message)
        else:
            self._add(RECORDS[name], self.now_ns, self._progress, message)

    def _add(
        self, operation: str, start_ns: int, progress: int | None, message: tuple[int, ...]
    ) -> None:
        operations = self._archive.operations
        number = operations.setdefault(operation, len(operations))
        since = 0 if progress is None else max(progress - (self._progress_before or 0), 0)
        self.rows.append((self.process, start_ns, self.now_ns, number, since, *message))
        self._progress_before = self._progress


def _read_locations(path: Path, otf2: Any, handle: Any, archive: _Archive) -> list[_Location]:
    refs = list(archive.kept["Location"])
    for ref in refs:
        otf2.Reader_SelectLocation(handle, ref)
    with contextlib.suppress(otf2.Error):  # an archive need not have local definitions
        otf2.Reader_OpenDefFiles(handle)
    otf2.Reader_OpenEvtFiles(handle)
    locations = [_Location(archive, ref, otf2.TYPE_DOUBLE) for ref in refs]
    for ref, location in zip(refs, locations, strict=True):
        with contextlib.suppress(otf2.Error):
            if definitions := otf2.Reader_GetDefReader(handle, ref):
                otf2.Reader_ReadAllLocalDefinitions(handle, definitions)
        file = path.with_suffix("") / f"{ref}.evt"
        if _is_cut(file):
            location.problem = f"its file is cut off after {file.stat().st_size} bytes"
            continue
        functions = {name: partial(location.take, name) for name in RECORDS}
        callbacks = _callbacks(otf2, "EvtReader", functions)
        try:
            if reader := otf2.Reader_GetEvtReader(handle, ref):
                otf2.Reader_RegisterEvtCallbacks(handle, reader, callbacks, None)
                while otf2.Reader_ReadLocalEvents(handle, reader, READ_AT_ONCE) == READ_AT_ONCE:
                    pass
            else:
                location.problem = "no file of events"
        except otf2.Error as error:
            location.problem = str(error)
        location.end()
    return locations
