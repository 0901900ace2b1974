"""Reads Chrome traces of the PyTorch profiler, one file a rank, as communication events."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.traces.events import (
    MAX_NS,
    MAX_PROCESSES,
    EventTable,
    Kind,
    joined_columns,
    typed_columns,
)
from voxcast.phases.traces.json_stream import JsonStream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COMMUNICATION = re.compile(r"(gloo|nccl|mpi|ucc|xccl):(?P<operation>\w+)")
PEER_TO_PEER = {"send", "recv", "isend", "irecv"}
ITEM_BYTES = {
    "float": 4, "double": 8, "int": 4, "long int": 8, "long": 8, "short int": 2, "short": 2,
    "c10::Half": 2, "c10::BFloat16": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
METADATA = ("distributedInfo", "baseTimeNanoseconds", "schemaVersion")
THEN = "record it with torch.profiler and export_chrome_trace"
# What an event raises whose members are missing, or of another type, or beyond 64 bits.
EVENT_ERRORS = (KeyError, TypeError, AttributeError, ValueError, OverflowError)


@dataclass
class _RankTrace:
    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    operation: array[int] = field(default_factory=lambda: array("q"))
    size_bytes: array[int] = field(default_factory=lambda: array("q"))
    group: list[str] = field(default_factory=list)
    first_ns: int = 2**63 - 1
    last_ns: int = -(2**63)
    problem: str = ""
    damaged: int = 0

    @property
    def distributed(self) -> dict[str, Any]:
        return self.metadata.get("distributedInfo") or {}

    def number(self, name: str, default: int, most: int, least: int = 0) -> int:
        """Return a number that the file tells of its rank, or of the run."""
        value = self.distributed.get(name, self.metadata.get(name, default))
        if type(value) is not int or not least <= value <= most:
            raise RunError(f"its {name} is no number from {least} to {most}", self.path, THEN)
        return value


def read_chrome_traces(paths: Sequence[Path]) -> EventTable:
    """Read the traces of the ranks of a run.

    Parameters
    ----------
    paths : sequence of Path
        ``.json`` or ``.json.gz``, in any order. They are read in pieces: memory is that of the
        communication events, whatever the size of the files.

    Returns
    -------
    EventTable
        Collectives with their sizes (``record_shapes=True``) and, where the profiler tells it,
        their process group. Computation is the time between them, in nanoseconds; of collectives
        that overlap, what is between the end of all before and the start. Messages between two
        ranks are local events, as the profiler does not record peers.

    Raises
    ------
    RunError
        If a file is no trace of the PyTorch profiler, or none has communication.
    """
    operations: dict[str, int] = {}
    traces: dict[int, _RankTrace] = {}
    for path in paths:
        trace = _read_rank(path, operations)
        rank = trace.number("rank", 0, MAX_PROCESSES - 1)
        if rank in traces:
            raise RunError(f"is of rank {rank}, as is {traces[rank].path.name}", path,
                           "give the files of one run")  # fmt: skip
        traces[rank] = trace
    if not any(trace.start_ns for trace in traces.values()):
        then = "the run is of one process, or was not profiled while it communicated"
        for trace in traces.values():
            if trace.problem or trace.damaged:
                then = trace.problem or f"{trace.damaged} of its events are damaged"
        raise RunError("has no gloo or nccl communication", paths[0], then)
    return _table(paths[0].parent if len(paths) > 1 else paths[0], operations, traces)


def _read_rank(path: Path, operations: dict[str, int]) -> _RankTrace:
    trace = _RankTrace(path)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as text:
        try:
            for name, value in JsonStream(text).members("traceEvents"):
                if name == "traceEvents":
                    try:
                        _add(trace, value, operations)
                    except EVENT_ERRORS:
                        trace.damaged += 1
                elif name in METADATA:
                    trace.metadata[name] = value
        except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
            trace.problem = f"cut short or damaged ({error})"
    if "schemaVersion" not in trace.metadata and "distributedInfo" not in trace.metadata:
        problem = trace.problem or "it lacks schemaVersion"
        raise RunError(f"is no trace of the PyTorch profiler: {problem}", path, THEN)
    if not isinstance(trace.distributed, dict):
        raise RunError("its distributedInfo is no object", path, THEN)
    return trace


def _add(trace: _RankTrace, event: Any, operations: dict[str, int]) -> None:
    if not isinstance(event, dict) or event.get("ph") != "X":
        return
    category = str(event.get("cat", ""))
    if category == "Trace":  # spans of the profiler
        return
    start_ns = round(float(event["ts"]) * 1000)
    end_ns = start_ns + round(float(event.get("dur", 0)) * 1000)
    if max(abs(start_ns), abs(end_ns)) > MAX_NS:
        raise OverflowError("a time beyond 64 bits")
    trace.first_ns, trace.last_ns = min(trace.first_ns, start_ns), max(trace.last_ns, end_ns)
    name = event.get("name", "")
    # The same names on the track of a GPU repeat those of the host.
    if category.startswith("gpu_") or not COMMUNICATION.fullmatch(name):
        return
    arguments = event.get("args", {})
    # First what may fail, so that the columns stay of one length.
    trace.size_bytes.append(
        _size(arguments.get("Input Dims", []), arguments.get("Input type", []))
    )
    trace.start_ns.append(start_ns)
    trace.end_ns.append(end_ns)
    trace.operation.append(operations.setdefault(name, len(operations)))
    trace.group.append(str(arguments.get("Process Group Name", "")))


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


def _table(source: Path, operations: dict[str, int], traces: dict[int, _RankTrace]) -> EventTable:
    size = max(t.number("world_size", 1, MAX_PROCESSES, 1) for t in traces.values())
    size = max(size, *traces, len(traces)) if len(traces) > 1 else max(size, *traces, 1)
    groups: dict[str, tuple[int, ...]] = {"": tuple(range(size))}
    for trace in traces.values():
        for described in trace.distributed.get("pg_config") or []:
            if isinstance(described, dict):
                ranks = [rank for rank in described.get("ranks") or [] if rank in range(size)]
                name = str(described.get("pg_name", ""))
                groups.setdefault(name, tuple(ranks) or tuple(range(size)))
    numbers = {name: number for number, name in enumerate(groups)}
    is_peer = np.array([name.split(":")[1] in PEER_TO_PEER for name in operations], bool)
    missing = [f"rank {rank}: no file" for rank in range(size) if rank not in traces]
    start_ns, end_ns = np.zeros((2, size), np.int64)
    parts: list[dict[str, np.ndarray]] = []
    for rank, trace in sorted(traces.items()):
        if trace.problem:
            missing.append(f"rank {rank}: {trace.problem}")
        if trace.damaged:
            missing.append(f"rank {rank}: {trace.damaged} damaged events")
        base_ns = trace.number("baseTimeNanoseconds", 0, MAX_NS)
        starts = np.array(trace.start_ns, np.int64)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.array(trace.end_ns, np.int64)[order]
        if trace.first_ns <= trace.last_ns:
            start_ns[rank], end_ns[rank] = trace.first_ns + base_ns, trace.last_ns + base_ns
        before = np.maximum.accumulate(np.concatenate([[trace.first_ns], ends[:-1]]))[: len(ends)]
        operation = np.array(trace.operation, np.int64)[order]
        peer_to_peer = is_peer[operation]
        if peer_to_peer.any():
            missing.append(f"rank {rank}: peers of {np.count_nonzero(peer_to_peer)} messages")
        group = np.array([numbers.get(name, 0) for name in trace.group], np.int64)[order]
        none = np.full(len(starts), -1)
        columns = {
            "process": np.full(len(starts), rank), "start_ns": starts + base_ns,
            "end_ns": ends + base_ns, "operation": operation, "peer": none, "tag": none,
            "kind": np.where(peer_to_peer, Kind.LOCAL, Kind.COLLECTIVE),
            "group": np.where(peer_to_peer, -1, group),
            "size_bytes": np.array(trace.size_bytes, np.int64)[order],
            "computation": np.maximum(starts - before, 0),
        }  # fmt: skip
        parts.append(typed_columns(columns))
    return EventTable(
        columns=joined_columns(parts),
        processes=tuple(f"rank {rank}" for rank in range(size)),
        operations=tuple(operations),
        groups=tuple(groups.values()),
        computation_unit="elapsed_ns",
        start_ns=start_ns,
        end_ns=end_ns,
        source=str(source),
        missing=tuple(missing),
    )
