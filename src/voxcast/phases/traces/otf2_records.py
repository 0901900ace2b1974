"""Definitions and records of an OTF2 archive, in columns, by the low-level bindings of ``otf2``.

The high-level reader of that package refuses archives of EZTrace 2.0, which repeat definitions,
and makes an object of each event. Here the first definition of a reference wins.
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.traces.otf2_callbacks import COLUMNS, register

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INSTRUCTION_COUNTERS = ("PAPI_TOT_INS", "perf::INSTRUCTIONS", "instructions")
READ_AT_ONCE = 1 << 20
END_OF_FILE = b"\x02\x01"


@dataclass
class Definitions:
    """What records of an archive refer to, by reference.

    Attributes
    ----------
    locations : dict
        Name, number of the location group and number of events.
    groups : dict
        Members, by the reference of the group; those of communicators are ranks.
    rank_locations : list of int
        Location of each rank; empty if the archive is of no MPI program.
    counters : dict
        Position of the instruction counter among the values of a metric.
    """

    strings: dict[int, str] = field(default_factory=dict)
    regions: dict[int, int] = field(default_factory=dict)
    location_groups: dict[int, int] = field(default_factory=dict)
    locations: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    groups: dict[int, list[int]] = field(default_factory=dict)
    communicators: dict[int, int] = field(default_factory=dict)
    metric_members: dict[int, int] = field(default_factory=dict)
    counters: dict[int, int] = field(default_factory=dict)
    rank_locations: list[int] = field(default_factory=list)
    ticks_per_s: int = 1_000_000_000
    offset: int = 0


def _is_cut(path: Path) -> bool:
    """Return whether a file lacks its end, beyond which the library would read earlier data."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-min(len(END_OF_FILE), path.stat().st_size), os.SEEK_END)
        return file.read() != END_OF_FILE


class Archive:
    """An open archive.

    Parameters
    ----------
    path : Path
        Its anchor file.

    Raises
    ------
    RunError
        If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        import _otf2

        then = "the archive is cut short or its .def file is missing; record it again"
        if _is_cut(path.with_suffix(".def")):
            raise RunError("its definitions are cut off", path, then)
        self._otf2, self._path = _otf2, path
        self.definitions = Definitions()
        self._functions: list[Any] = []  # the library calls them, so that they must live on
        try:
            self._handle = _otf2.Reader_Open(str(path))
        except _otf2.Error as error:
            raise RunError(f"is no OTF2 archive: {error}", path, "record it again") from None
        try:
            _otf2.Reader_SetSerialCollectiveCallbacks(self._handle)
            self._read_definitions()
        except _otf2.Error as error:
            self.close()
            raise RunError(f"its definitions cannot be read: {error}", path, then) from None

    def close(self) -> None:
        """Close the archive."""
        self._otf2.Reader_Close(self._handle)

    def _read_definitions(self) -> None:
        otf2, into = self._otf2, self.definitions
        location_group = otf2.GROUP_TYPE_COMM_LOCATIONS

        def string(_: Any, ref: int, text: str) -> None:
            into.strings.setdefault(ref, text)

        def region(_: Any, ref: int, name: int, *__: Any) -> None:
            into.regions.setdefault(ref, name)

        def group_of_locations(_: Any, ref: int, name: int, *__: Any) -> None:
            into.location_groups.setdefault(ref, name)

        def location(_: Any, ref: int, name: int, __: Any, events: int, group: int) -> None:
            into.locations.setdefault(ref, (name, group, events))

        def group(
            _: Any, ref: int, __: int, kind: Any, ___: Any, ____: Any, members: list[int]
        ) -> None:
            if kind == location_group:
                # EZTrace gives it the reference of a communicator's group.
                into.rank_locations = into.rank_locations or members
            else:
                into.groups.setdefault(ref, members)

        def communicator(_: Any, ref: int, __: int, members: int, *___: Any) -> None:
            into.communicators.setdefault(ref, members)

        def clock(_: Any, ticks_per_s: int, offset: int, *__: Any) -> None:
            into.ticks_per_s, into.offset = ticks_per_s, offset

        def metric_member(_: Any, ref: int, name: int, *__: Any) -> None:
            into.metric_members.setdefault(ref, name)

        def metric_class(_: Any, ref: int, members: list[int], *__: Any) -> None:
            names = [into.strings.get(into.metric_members.get(m, -1), "") for m in members]
            for position, name in enumerate(names):
                if name in INSTRUCTION_COUNTERS:
                    into.counters.setdefault(ref, position)

        callbacks = otf2.GlobalDefReaderCallbacks_New()
        for name, function in (
            ("String", string), ("Region", region), ("LocationGroup", group_of_locations),
            ("Location", location), ("Group", group), ("Comm", communicator),
            ("ClockProperties", clock), ("MetricMember", metric_member),
            ("MetricClass", metric_class),
        ):  # fmt: skip
            getattr(otf2, f"GlobalDefReaderCallbacks_Set{name}Callback")(callbacks, function)
        reader = otf2.Reader_GetGlobalDefReader(self._handle)
        otf2.Reader_RegisterGlobalDefCallbacks(self._handle, reader, callbacks, None)
        otf2.GlobalDefReaderCallbacks_Delete(callbacks)
        otf2.Reader_ReadAllGlobalDefinitions(self._handle, reader)
        otf2.Reader_CloseGlobalDefReader(self._handle, reader)

    def records(self) -> Iterator[tuple[int, np.ndarray | None, str]]:
        """Yield the records of each location.

        Yields
        ------
        location : int
        records : ndarray of uint64, shape (records, 6), or None
            None if its file is missing or cut off.
        problem : str
            Why what follows is missing; empty if nothing is.
        """
        otf2, handle = self._otf2, self._handle
        for location in self.definitions.locations:
            otf2.Reader_SelectLocation(handle, location)
        with contextlib.suppress(otf2.Error):  # an archive need not have them
            otf2.Reader_OpenDefFiles(handle)
            for location in self.definitions.locations:
                with contextlib.suppress(otf2.Error):
                    reader = otf2.Reader_GetDefReader(handle, location)
                    if reader:
                        otf2.Reader_ReadAllLocalDefinitions(handle, reader)
                        otf2.Reader_CloseDefReader(handle, reader)
            otf2.Reader_CloseDefFiles(handle)
        otf2.Reader_OpenEvtFiles(handle)
        for location in self.definitions.locations:
            file = self._path.with_suffix("") / f"{location}.evt"
            if _is_cut(file):
                yield location, None, f"its file is cut off after {file.stat().st_size} bytes"
                continue
            try:
                reader = otf2.Reader_GetEvtReader(handle, location)
            except otf2.Error as error:
                yield location, None, str(error)
                continue
            if not reader:
                yield location, None, "no file of events"
                continue
            values, problem = io.BytesIO(), ""
            functions = register(otf2, handle, reader, values.write, self.definitions.counters)
            try:
                while otf2.Reader_ReadLocalEvents(handle, reader, READ_AT_ONCE) == READ_AT_ONCE:
                    pass
            except otf2.Error as error:
                problem = str(error)
            with contextlib.suppress(otf2.Error):
                otf2.Reader_CloseEvtReader(handle, reader)
            del functions
            records = np.frombuffer(values.getbuffer(), "<u8").reshape(-1, COLUMNS)
            yield location, records, problem
        otf2.Reader_CloseEvtFiles(handle)
