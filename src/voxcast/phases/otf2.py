"""Reads OTF2 archives of EZTrace or Score-P by the low-level bindings of the package ``otf2``.

The high-level reader of that package refuses archives of EZTrace 2.0, which repeat definitions,
and makes an object of each event. Here the first definition of a reference counts, and the C
library calls a plain function for each record, which appends it to a table.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import struct
from ctypes import c_double, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.events import EventTable, Kind, joined_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INSTRUCTION_COUNTERS = ("PAPI_TOT_INS", "perf::INSTRUCTIONS", "instructions")
# Calls of MPI and of input and output are events; other regions are computation.
EVENT_REGION = re.compile(
    r"MPI_\w+|f?(read|write|open|close|sync)(64)?|p(read|write)(v|64)?|readv|writev|lseek(64)?"
)
COLUMNS = 7  # of a record: code, time, and up to five values
EVERY_RECORD = (c_uint64, c_uint64, c_uint64, c_void_p, c_void_p)  # location, time, position
MESSAGE = (c_uint32, c_uint32, c_uint32, c_uint64)  # peer, communicator, tag, bytes
READ_AT_ONCE = 1 << 20
END_OF_FILE = b"\x02\x01"
PLUGIN = "record it with the plugin of the MPI in use, e.g. `eztrace -t openmpi`"
CUT = "the archive is cut short or its .def file is missing; record it again"


class Code(IntEnum):
    """Records that matter here; named after the library's callbacks."""

    Enter = 0
    Leave = 1
    MpiSend = 2
    MpiIsend = 3
    MpiRecv = 4
    MpiIrecv = 5
    MpiIrecvRequest = 6
    MpiCollectiveBegin = 7
    MpiCollectiveEnd = 8
    IoOperationComplete = 9
    Metric = 10


VALUES: dict[Code, tuple[Any, ...]] = {
    Code.Enter: (c_uint32,),  # region
    Code.Leave: (c_uint32,),
    Code.MpiSend: MESSAGE,
    Code.MpiIsend: (*MESSAGE, c_uint64),  # and the request
    Code.MpiRecv: MESSAGE,
    Code.MpiIrecv: (*MESSAGE, c_uint64),
    Code.MpiIrecvRequest: (c_uint64,),
    Code.MpiCollectiveBegin: (),
    Code.MpiCollectiveEnd: (c_uint8, c_uint32, c_uint32, c_uint64, c_uint64),
    Code.IoOperationComplete: (c_uint32, c_uint64, c_uint64),  # handle, bytes, matching
    Code.Metric: (c_uint32, c_uint8, c_void_p, c_void_p),  # metric, count, types, values
}
# Events, and their operations outside of a call.
EVENTS = {
    Code.MpiSend: (Kind.SEND, "MPI_Send"),
    Code.MpiIsend: (Kind.SEND, "MPI_Send"),
    Code.MpiRecv: (Kind.RECEIVE, "MPI_Recv"),
    Code.MpiIrecv: (Kind.RECEIVE, "MPI_Irecv"),
    Code.MpiCollectiveEnd: (Kind.COLLECTIVE, "MPI_Collective"),
    Code.IoOperationComplete: (Kind.LOCAL, "input or output"),
}
PENDING = {
    Code.MpiIrecvRequest: (Code.MpiIrecv, "ends of nonblocking receives"),
    Code.MpiCollectiveBegin: (Code.MpiCollectiveEnd, "ends of nonblocking collectives"),
}
# Position of the reference among the arguments is 0; ClockProperties has none.
DEFINITIONS = (
    "String", "Region", "LocationGroup", "Location", "Group", "Comm", "ClockProperties",
    "MetricMember", "MetricClass",
)  # fmt: skip


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
    with _opened(path) as (otf2, handle):
        try:
            definitions = _Definitions(otf2, handle)
        except otf2.Error as error:
            raise RunError(f"its definitions cannot be read: {error}", path, CUT) from None
        processes: dict[int, int] = {}
        # Processes are in the order of ranks, else as they are defined.
        of_ranks = [definitions.of_location(ref)[1] for ref in definitions.rank_locations]
        for group in [*of_ranks, *(of[3] for of in definitions.kept["Location"].values())]:
            processes.setdefault(group, len(processes))
        operations: dict[str, int] = {}
        parts, missing = [], []
        start_ns = np.full(len(processes), np.iinfo(np.int64).max)
        end_ns = np.full(len(processes), np.iinfo(np.int64).min)
        n_records = 0
        for location, records, problem in _records(path, otf2, handle, definitions):
            title, group = definitions.of_location(location)
            if problem or not len(records):
                missing.append(f"{title}: {problem or 'no events'}")
            if not len(records):
                continue
            n_records += len(records)
            process, time_ns = processes[group], definitions.ns(records[:, 1])
            start_ns[process] = min(start_ns[process], time_ns[0])
            end_ns[process] = max(end_ns[process], time_ns[-1])
            counts = np.bincount(records[:, 0].astype(np.int64), minlength=len(Code))
            missing += [
                f"{title}: {counts[begun] - counts[ended]} {ends}"
                for begun, (ended, ends) in PENDING.items()
                if counts[begun] > counts[ended]
            ]
            part = _events(records, time_ns, definitions, operations)
            parts.append(part | {"process": np.full(len(part["start_ns"]), process)})
    if not n_records:
        raise RunError("has no events", path, f"the program was not traced; {PLUGIN}")
    if not sum(len(part["start_ns"]) for part in parts):
        raise RunError("has no communication, input or output", path, PLUGIN)
    columns = joined_columns(parts)
    # Locations come one after the other, which is the order of a process unless it has threads.
    has_threads = len(parts) > len(np.unique(columns["process"]))
    keys = ("start_ns", "process") if has_threads else ("process",)
    order = np.lexsort([columns[name] for name in keys])
    is_empty = start_ns > end_ns
    return EventTable(
        columns={name: column[order] for name, column in columns.items()},
        processes=tuple(
            definitions.name("LocationGroup", ref, f"process {ref}") for ref in processes
        ),
        operations=tuple(operations),
        groups=tuple(tuple(ranks) for ranks in definitions.members),
        computation_unit="instructions" if definitions.counters else "elapsed_ns",
        start_ns=np.where(is_empty, 0, start_ns),
        end_ns=np.where(is_empty, 0, end_ns),
        source=str(path),
        missing=tuple(missing),
    )


def _is_cut(path: Path) -> bool:
    """Return whether a file lacks its end, beyond which the library would read earlier data."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-min(len(END_OF_FILE), path.stat().st_size), os.SEEK_END)
        return file.read() != END_OF_FILE


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open an archive; yield the bindings and its handle."""
    import _otf2

    if _is_cut(path.with_suffix(".def")):
        raise RunError("its definitions are cut off", path, CUT)
    try:
        handle = _otf2.Reader_Open(str(path))
    except _otf2.Error as error:
        raise RunError(f"is not an OTF2 archive: {error}", path, "record it again") from None
    try:
        yield _otf2, handle
    finally:
        _otf2.Reader_Close(handle)


class _Definitions:
    """Definitions of an archive: `kept` has their arguments by kind and reference.

    `rank_locations` has the location of each rank, `members` the ranks of each communicator,
    `numbers` the number of each communicator by its reference, and `counters` the position of the
    instruction counter among the values of a metric.
    """

    def __init__(self, otf2: Any, handle: Any) -> None:
        otf2.Reader_SetSerialCollectiveCallbacks(handle)
        self.kept: dict[str, dict[int, tuple[Any, ...]]] = {name: {} for name in DEFINITIONS}
        self.rank_locations: list[int] = []

        def keep(name: str) -> Any:
            def callback(_: Any, ref: int, *values: Any) -> None:
                if name == "Group" and values[1] == otf2.GROUP_TYPE_COMM_LOCATIONS:
                    # EZTrace gives it the reference of a communicator's group.
                    self.rank_locations = self.rank_locations or values[-1]
                else:
                    self.kept[name].setdefault(ref, values)

            return callback

        callbacks = otf2.GlobalDefReaderCallbacks_New()
        functions = {name: keep(name) for name in DEFINITIONS}  # must outlive the reading
        for name, function in functions.items():
            getattr(otf2, f"GlobalDefReaderCallbacks_Set{name}Callback")(callbacks, function)
        reader = otf2.Reader_GetGlobalDefReader(handle)
        otf2.Reader_RegisterGlobalDefCallbacks(handle, reader, callbacks, None)
        otf2.GlobalDefReaderCallbacks_Delete(callbacks)
        otf2.Reader_ReadAllGlobalDefinitions(handle, reader)
        otf2.Reader_CloseGlobalDefReader(handle, reader)
        groups, communicators = self.kept["Group"], self.kept["Comm"]
        self.numbers = {ref: number for number, ref in enumerate(communicators)}
        self.members = [groups.get(of[1], ([],))[-1] for of in communicators.values()]
        self.counters: dict[int, int] = {}
        for ref, (members, *_) in self.kept["MetricClass"].items():
            for position, member in enumerate(members):
                if self.name("MetricMember", member) in INSTRUCTION_COUNTERS:
                    self.counters.setdefault(ref, position)
        self.event_regions = [
            ref for ref in self.kept["Region"] if EVENT_REGION.fullmatch(self.name("Region", ref))
        ]
        self.ticks_per_s, (self.offset, *_) = next(
            iter(self.kept["ClockProperties"].items()), (1_000_000_000, (0,))
        )

    def name(self, kind: str, ref: int, default: str = "") -> str:
        """Return the name of a region, group of locations, or metric."""
        string = self.kept[kind].get(ref, (-1,))[0]
        return str(self.kept["String"].get(string, (default,))[0])

    def of_location(self, ref: int) -> tuple[str, int]:
        """Return the name of a location and its group."""
        return self.name("Location", ref, str(ref)), self.kept["Location"][ref][3]

    def ns(self, ticks: np.ndarray) -> np.ndarray:
        """Return times of records in nanoseconds."""
        since: np.ndarray = ticks.astype(np.int64) - self.offset
        if self.ticks_per_s == 1_000_000_000:
            return since
        ns: np.ndarray = np.rint(since * (1e9 / int(self.ticks_per_s))).astype(np.int64)
        return ns


def _records(
    path: Path, otf2: Any, handle: Any, definitions: _Definitions
) -> Iterator[tuple[int, np.ndarray, str]]:
    """Yield each location, its records of shape (records, `COLUMNS`), and its problem if any."""
    locations = list(definitions.kept["Location"])
    for location in locations:
        otf2.Reader_SelectLocation(handle, location)
    with contextlib.suppress(otf2.Error):  # an archive need not have local definitions
        otf2.Reader_OpenDefFiles(handle)
        for location in locations:
            with contextlib.suppress(otf2.Error):
                reader = otf2.Reader_GetDefReader(handle, location)
                if reader:
                    otf2.Reader_ReadAllLocalDefinitions(handle, reader)
                    otf2.Reader_CloseDefReader(handle, reader)
        otf2.Reader_CloseDefFiles(handle)
    otf2.Reader_OpenEvtFiles(handle)
    for location in locations:
        values, problem = io.BytesIO(), ""
        file = path.with_suffix("") / f"{location}.evt"
        try:
            if _is_cut(file):
                problem = f"its file is cut off after {file.stat().st_size} bytes"
            elif reader := otf2.Reader_GetEvtReader(handle, location):
                functions = _register(otf2, handle, reader, values.write, definitions.counters)
                while otf2.Reader_ReadLocalEvents(handle, reader, READ_AT_ONCE) == READ_AT_ONCE:
                    pass
                otf2.Reader_CloseEvtReader(handle, reader)
                del functions
            else:
                problem = "no file of events"
        except otf2.Error as error:
            problem = str(error)
        yield location, np.frombuffer(values.getbuffer(), "<u8").reshape(-1, COLUMNS), problem
    otf2.Reader_CloseEvtFiles(handle)


def _register(
    otf2: Any, handle: Any, reader: Any, write: Any, counters: dict[int, int]
) -> list[Any]:
    """Have the records of a location written, and return objects that must live meanwhile."""
    callbacks = otf2.EvtReaderCallbacks_New()
    functions = []
    for code, types in VALUES.items():
        function = _appending(code, len(types), write)
        if code == Code.Metric:
            function = _counting(write, counters, otf2.TYPE_DOUBLE.value)
        pointer = ctypes.CFUNCTYPE(c_int, *EVERY_RECORD, *types)(function)
        # By index, for a function without the argument types that the package demands.
        setter = otf2.Config.conf.lib[f"OTF2_EvtReaderCallbacks_Set{code.name}Callback"]
        setter.argtypes = c_void_p, type(pointer)
        setter(ctypes.cast(callbacks, c_void_p), pointer)
        functions.append(pointer)
    otf2.Reader_RegisterEvtCallbacks(handle, reader, callbacks, None)
    otf2.EvtReaderCallbacks_Delete(callbacks)
    return functions


def _appending(code: Code, n_values: int, write: Any) -> Any:
    pack = struct.Struct(f"<{2 + n_values}Q{8 * (COLUMNS - 2 - n_values)}x").pack
    number = code.value

    def callback(
        _location: int, time: int, _at: int, _data: Any, _attributes: Any, *values: int
    ) -> int:
        write(pack(number, time, *values))
        return 0

    return callback


def _counting(write: Any, counters: dict[int, int], type_double: int) -> Any:
    append = _appending(Code.Metric, 1, write)

    def callback(
        location: int, time: int, at: int, data: Any, attributes: Any,
        metric: int, _count: int, types: int, values: int,
    ) -> int:  # fmt: skip
        position = counters.get(metric)
        if position is None:
            return 0
        address = values + 8 * position
        number = c_uint64.from_address(address).value
        if c_uint8.from_address(types + position).value == type_double:
            real = c_double.from_address(address).value
            number = int(real) if 0 <= real < 2**63 else 0
        append(location, time, at, data, attributes, number)
        return 0

    return callback


def _events(
    records: np.ndarray,
    time_ns: np.ndarray,
    definitions: _Definitions,
    operations: dict[str, int],
) -> dict[str, np.ndarray]:
    """Return the columns of the events of a location, in their order."""
    code = records[:, 0].astype(np.int64)
    of_event = np.isin(records[:, 2], np.array(definitions.event_regions, np.uint64))
    enters = (code == Code.Enter) & of_event
    leaves = (code == Code.Leave) & of_event
    # Calls made by other calls are part of these.
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
    message_rows = np.flatnonzero(np.isin(code, list(EVENTS)))
    call_of = np.searchsorted(call_rows, message_rows, side="right") - 1
    call_of[depth[message_rows] < 1] = -1
    is_silent = np.ones(len(call_rows), bool)
    is_silent[call_of[call_of >= 0]] = False
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
    columns = _content(records[rows], definitions)
    columns["start_ns"], columns["end_ns"] = time_ns[start_rows], time_ns[end_rows]
    # The operation is the region of the call; outside of calls it follows from the record.
    key = -1 - code[rows]
    key[within] = records[call_rows[calls[within]], 2]
    keys, position = np.unique(key, return_inverse=True)
    names = [
        EVENTS[Code(-1 - ref)][1] if ref < 0 else definitions.name("Region", ref)
        for ref in keys.tolist()
    ]
    numbers = [operations.setdefault(name, len(operations)) for name in names]
    columns["operation"] = np.array(numbers, np.int64)[position]
    progress = time_ns
    if definitions.counters:
        counted = code == Code.Metric
        last = np.maximum.accumulate(np.where(counted, np.arange(len(records)), -1))
        last[last < 0] = np.argmax(counted)
        progress = np.where(counted[last], records[last, 2], 0).astype(np.int64)
    before = np.concatenate([progress[:1], progress[end_rows[:-1]]])[: len(rows)]
    columns["computation"] = np.maximum(progress[start_rows] - before, 0)
    return columns


def _content(records: np.ndarray, definitions: _Definitions) -> dict[str, np.ndarray]:
    """Return kind, peer, tag, group and size of events."""
    kinds = np.full(len(Code), Kind.LOCAL)
    kinds[list(EVENTS)] = [kind for kind, _ in EVENTS.values()]
    code = records[:, 0].astype(np.int64)
    kind = kinds[code]
    is_message, is_collective = kind <= Kind.RECEIVE, kind == Kind.COLLECTIVE
    group, peer = np.full((2, len(records)), -1)
    references, position = np.unique(records[:, 3], return_inverse=True)
    for i, reference in enumerate(references.tolist()):
        if reference not in definitions.numbers:
            continue
        number = definitions.numbers[reference]
        members = np.array(definitions.members[number], np.int64)
        group[(position == i) & (is_message | is_collective)] = number
        here = (position == i) & is_message & (records[:, 2] < len(members))
        peer[here] = members[records[here, 2].astype(np.int64)]
    io_bytes = np.where(records[:, 3] < 2**63, records[:, 3], 0)  # the largest: unknown
    size = np.select(
        [is_message, is_collective, code == Code.IoOperationComplete],
        [records[:, 5], np.maximum(records[:, 5], records[:, 6]), io_bytes], 0,
    )  # fmt: skip
    tag = np.where(is_message, records[:, 4].astype(np.int64), -1)
    return {"kind": kind, "peer": peer, "tag": tag, "group": group, "size_bytes": size}
