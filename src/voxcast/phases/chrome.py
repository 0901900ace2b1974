"""Reads Chrome traces, one file a rank: of ``voxcast phases record`` and of PyTorch's profiler."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.events import MAX_NS, MAX_PROCESSES, EventTable, Kind, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

COMMUNICATION = re.compile(r"(gloo|nccl|mpi|ucc|xccl):(?P<operation>\w+)")
PEER_TO_PEER = {"send", "recv", "isend", "irecv"}
ITEM_BYTES = {
    "float": 4, "double": 8, "int": 4, "long int": 8, "long": 8, "short int": 2, "short": 2,
    "c10::Half": 2, "c10::BFloat16": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
METADATA = ("distributedInfo", "baseTimeNanoseconds", "schemaVersion", "unrecorded")
# Numbers that `voxcast phases record` records of an event, and their bounds.
RECORDED = ("computation_ns", "kind", "peer", "tag", "size_bytes")
LEAST = (0, Kind.SEND, -1, -1, 0)
MOST = (MAX_NS, Kind.LOCAL, MAX_PROCESSES, 2**31 - 1, MAX_NS)
NO_GROUP = "-1"
NOT_SPACE = re.compile(r"\S")
CHUNK_CHARACTERS = 1 << 16
MAX_VALUE_CHARACTERS = 1 << 24  # of one value; a larger one is damage
THEN = "record it with `voxcast phases record`, or torch.profiler and export_chrome_trace"
# Raised by events whose members are missing, of another type, or beyond 64 bits.
EVENT_ERRORS = (KeyError, TypeError, AttributeError, ValueError, OverflowError)


@dataclass
class _Rank:
    """Content of a file.

    A row has start, end, number of the operation, `RECORDED` and name of the group. `groups` has a
    key that is the same on all ranks, and the members, of each group by its name in this file.
    """

    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, tuple[Any, tuple[int, ...]]] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    messages_without_peer: int = 0
    is_mpi: bool = False
    first_ns: int = MAX_NS
    last_ns: int = -MAX_NS
    problems: list[str] = field(default_factory=list)

    @property
    def distributed(self) -> dict[str, Any]:
        return self.metadata.get("distributedInfo") or {}

    def number(self, name: str, default: int, most: int, least: int = 0) -> int:
        """Return a number stated by the file."""
        value = self.distributed.get(name, self.metadata.get(name, default))
        if type(value) is not int or not least <= value <= most:
            raise RunError(f"its {name} is not a number from {least} to {most}", self.path, THEN)
        return value


def read_chrome(paths: Sequence[Path]) -> EventTable:
    """Read the traces of the ranks of a run.

    Parameters
    ----------
    paths : sequence of Path
        ``.json`` or ``.json.gz``, in any order; they are read in pieces, so that memory grows
        with the communication events and not with the files.

    Returns
    -------
    EventTable
        Of the profiler: collectives with their sizes (``record_shapes=True``) and, where the
        profiler has it, their process group. Computation is the time between them; of collectives
        that overlap, from the end of all before to the start. Messages between two ranks are
        local events, as the profiler does not record peers.

    Raises
    ------
    RunError
        If a file is of another kind, or none has communication.
    """
    operations: dict[str, int] = {}
    ranks: dict[int, _Rank] = {}
    for path in paths:
        if len(paths) > 1 and not path.stat().st_size:
            continue  # as a full disk leaves it
        content = _read_rank(path, operations)
        rank = content.number("rank", 0, MAX_PROCESSES - 1)
        if rank in ranks:
            raise RunError(f"is of rank {rank}, as is {ranks[rank].path.name}", path,
                           "give the files of one run")  # fmt: skip
        ranks[rank] = content
    runs = {str(content.distributed.get("run", "")) for content in ranks.values()}
    if len(runs) > 1:
        raise RunError(f"holds files of {len(runs)} runs", paths[0].parent, "keep one of them")
    if not any(content.rows for content in ranks.values()):
        problems = [problem for content in ranks.values() for problem in content.problems]
        then = "the run is of one process, or was not profiled while it communicated"
        raise RunError("has no communication", paths[0], "; ".join(problems) or then)
    return _table(paths[0].parent if len(paths) > 1 else paths[0], operations, ranks)


def _read_rank(path: Path, operations: dict[str, int]) -> _Rank:
    content, damaged = _Rank(path), 0
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as text:
        try:
            for name, value in JsonStream(text).members("traceEvents"):
                if name == "traceEvents":
                    try:
                        _add(content, value, operations)
                    except EVENT_ERRORS:
                        damaged += 1
                elif name in METADATA:
                    content.metadata[name] = value
        except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
            content.problems.append(f"cut short or damaged ({error})")
    if "schemaVersion" not in content.metadata and "distributedInfo" not in content.metadata:
        problem = "; ".join(content.problems) or "it lacks schemaVersion"
        raise RunError(f"is not a Chrome trace of a rank: {problem}", path, THEN)
    if not isinstance(content.distributed, dict):
        raise RunError("its distributedInfo is not an object", path, THEN)
    for described in content.distributed.get("pg_config") or []:
        if isinstance(described, dict):
            name = str(described.get("pg_name", ""))
            content.groups.setdefault(name, (name, tuple(described.get("ranks") or [])))
    if damaged:
        content.problems.append(f"{damaged} damaged events")
    unrecorded = content.metadata.get("unrecorded")
    if isinstance(unrecorded, dict):
        content.problems += [
            f"{count} × {name} not followed" for name, count in unrecorded.items()
        ]
    return content


def _add(content: _Rank, event: Any, operations: dict[str, int]) -> None:
    if not isinstance(event, dict) or event.get("ph") not in ("X", "M"):
        return
    category, name = str(event.get("cat", "")), event.get("name", "")
    arguments = event.get("args", {})
    if event["ph"] == "M":
        if name == "communicator":
            members, earlier = tuple(map(int, arguments["ranks"])), int(arguments["earlier"])
            content.groups[str(arguments["number"])] = (members, earlier), members
        return
    if category == "Trace":  # spans of the profiler
        return
    start_ns = round(float(event["ts"]) * 1000)
    end_ns = start_ns + round(float(event.get("dur", 0)) * 1000)
    if max(abs(start_ns), abs(end_ns)) > MAX_NS:
        raise OverflowError("a time beyond 64 bits")
    content.first_ns = min(content.first_ns, start_ns)
    content.last_ns = max(content.last_ns, end_ns)
    if category == "mpi":
        content.is_mpi = True
        values = [arguments[column] for column in RECORDED]
        group = str(arguments["group"])
        if not (isinstance(name, str) and (group in content.groups or group == NO_GROUP)):
            raise ValueError("an operation or a group of another form")
        if name == "start":
            return
    # The track of a GPU repeats the names of the host.
    elif not category.startswith("gpu_") and (match := COMMUNICATION.fullmatch(name)):
        is_message = match["operation"] in PEER_TO_PEER
        kind = Kind.LOCAL if is_message else Kind.COLLECTIVE
        group = NO_GROUP if is_message else str(arguments.get("Process Group Name", ""))
        size_bytes = _size(arguments.get("Input Dims", []), arguments.get("Input type", []))
        values = [0, int(kind), -1, -1, size_bytes]
        content.messages_without_peer += is_message
    else:
        return
    for value, least, most in zip(values, LEAST, MOST, strict=True):
        if type(value) is not int or not least <= value <= most:
            raise ValueError("a number out of range")
    number = operations.setdefault(name, len(operations))
    content.rows.append((start_ns, end_ns, number, *values, group))


def _size(dims: Any, types: Any) -> int:
    """Return the bytes of tensors by their shapes and types; lists of tensors nest."""
    total = 0
    for shape, kind in zip(dims, types, strict=False):
        if isinstance(kind, list):
            total += _size(shape, kind)
        elif shape and isinstance(shape[0], list):
            item_bytes = next((n for t, n in ITEM_BYTES.items() if f"[{t}" in str(kind)), 4)
            total += sum(math.prod(part) for part in shape) * item_bytes
        else:
            total += math.prod(shape) * ITEM_BYTES.get(kind, 0)
    return total


def _table(source: Path, operations: dict[str, int], ranks: dict[int, _Rank]) -> EventTable:
    size = max(content.number("world_size", 1, MAX_PROCESSES, 1) for content in ranks.values())
    size = max(size, max(ranks) + 1 if len(ranks) > 1 else 1)
    is_mpi = any(content.is_mpi for content in ranks.values())
    everyone = tuple(range(size))
    groups: dict[Any, tuple[int, ...]] = {} if is_mpi else {"": everyone}
    missing = [f"rank {rank}: no file" for rank in everyone if rank not in ranks]
    rows: list[tuple[int, ...]] = []
    start_ns, end_ns = np.zeros((2, size), np.int64)
    for rank, content in sorted(ranks.items()):
        missing += [f"rank {rank}: {problem}" for problem in content.problems]
        if content.messages_without_peer:
            missing.append(f"rank {rank}: peers of {content.messages_without_peer} messages")
        for key, members in content.groups.values():
            groups.setdefault(key, tuple(n for n in members if n in range(size)) or everyone)
    numbers = {key: number for number, key in enumerate(groups)}
    for rank, content in sorted(ranks.items()):
        base_ns = content.number("baseTimeNanoseconds", 0, MAX_NS)
        if content.first_ns <= content.last_ns:
            start_ns[rank], end_ns[rank] = content.first_ns + base_ns, content.last_ns + base_ns
        local = {name: numbers[key] for name, (key, _) in content.groups.items()} | {NO_GROUP: -1}
        busy_until_ns = content.first_ns
        for start, end, operation, computation_ns, *values, size_bytes, group in sorted(
            content.rows, key=lambda row: row[0]
        ):
            work_ns = computation_ns if content.is_mpi else max(start - busy_until_ns, 0)
            busy_until_ns = max(busy_until_ns, end)
            place = (rank, start + base_ns, end + base_ns, operation, work_ns)
            rows.append((*place, *values, local.get(group, 0), size_bytes))
    return EventTable(
        columns=columns_of(rows),
        processes=tuple(f"rank {rank}" for rank in everyone),
        operations=tuple(operations),
        groups=tuple(groups.values()),
        computation_unit="cpu_ns" if is_mpi else "elapsed_ns",
        start_ns=start_ns,
        end_ns=end_ns,
        source=str(source),
        missing=tuple(missing),
    )


class JsonStream:
    """Values of a text too large for memory, decoded one after the other.

    All methods raise ValueError where the text is not JSON, or ends.
    """

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._decoder = json.JSONDecoder()
        self._buffer = ""
        self._position = 0

    def members(self, array: str) -> Iterator[tuple[str, Any]]:
        """Yield name and value of each member of the object, and each element of `array`."""
        for _ in self._items("{", "}"):
            name = self._value()
            self._take(":")
            for _ in self._items("[", "]") if name == array else (None,):
                yield name, self._value()

    def _items(self, start: str, end: str) -> Iterator[None]:
        """Stop before each item of an object or array, for the caller to take it."""
        self._take(start)
        if self._next() == end:
            self._take(end)
            return
        yield
        while self._take("," + end) == ",":
            yield

    def _next(self) -> str:
        """Return the next character that is not a space, without taking it."""
        while not (character := NOT_SPACE.search(self._buffer, self._position)):
            self._position = len(self._buffer)
            self._read()
        self._position = character.start()
        return character[0]

    def _take(self, characters: str) -> str:
        character = self._next()
        if character not in characters:
            raise ValueError(f"{character!r} where {characters!r} was expected")
        self._position += 1
        return character

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._position)
                if end < len(self._buffer):  # a number at the end of the buffer may go on
                    self._position = end
                    return value
            except json.JSONDecodeError:
                if len(self._buffer) - self._position > MAX_VALUE_CHARACTERS:
                    raise
            self._read()

    def _read(self) -> None:
        chunk = self._text.read(CHUNK_CHARACTERS)
        if not chunk:
            raise ValueError("the text ends too early")
        self._buffer = self._buffer[self._position :] + chunk
        self._position = 0
