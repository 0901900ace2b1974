"""Reads what `mpi_recorder` wrote: a folder with one file a rank."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.traces.events import (
    MAX_NS,
    MAX_PROCESSES,
    EventTable,
    joined_columns,
    typed_columns,
)
from voxcast.phases.traces.mpi_recorder import (
    BLOCK,
    CALLS,
    COMMUNICATOR,
    END,
    MAGIC,
    RECORD,
    RECORD_FIELDS,
    START,
    SUFFIX,
)

if TYPE_CHECKING:
    from pathlib import Path

_DTYPES = {"q": "<i8", "i": "<i4", "h": "<i2"}
RECORD_DTYPE = np.dtype([(name, _DTYPES[code]) for name, code in RECORD_FIELDS])
THEN = "record it again with `voxcast trace`"


@dataclass
class _RankFile:
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    communicators: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    calls: np.ndarray = field(default_factory=lambda: np.empty(0, RECORD_DTYPE))
    is_cut: bool = False


def read_mpi_trace(folder: Path) -> EventTable:
    """Read the trace of an mpi4py program.

    Parameters
    ----------
    folder : Path
        With a file for each rank.

    Returns
    -------
    EventTable
        Computation in nanoseconds of CPU time. Ranks without a file, or that stopped early, are in
        `missing`.

    Raises
    ------
    RunError
        If no rank has a trace, or files are of several runs.
    """
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise RunError("has no trace of a rank", folder, THEN)
    missing = []
    ranks: dict[int, _RankFile] = {}
    for path in paths:
        content = _read_rank(path)
        if content.start:
            rank = content.start["rank"]
            if rank in ranks:
                problem = f"is of rank {rank}, as is another file"
                raise RunError(problem, path, "keep the files of one run")
            ranks[rank] = content
        else:
            missing.append(f"{path.name}: it ends before its start was written")
    if not ranks:
        raise RunError("no file of a rank has a start", folder, THEN)
    runs = {content.start["run"] for content in ranks.values()}
    if len(runs) > 1:
        raise RunError(f"holds files of {len(runs)} runs", folder, "keep those of one")
    size = next(iter(ranks.values())).start["size"]
    missing += [f"rank {rank}: no file" for rank in range(size) if rank not in ranks]
    for rank, content in sorted(ranks.items()):
        missing += _gaps(rank, content)
    return _table(folder, size, ranks, tuple(missing))


def _gaps(rank: int, content: _RankFile) -> list[str]:
    if not content.end:
        seen = ", its file is cut short" if content.is_cut else ""
        return [f"rank {rank}: stopped before the end{seen}"]
    return [
        f"rank {rank}: {count} × {name} not followed"
        for name, count in sorted(content.end["unrecorded"].items())
    ]


def _read_rank(path: Path) -> _RankFile:
    """Read the blocks of a file as far as they are whole."""
    data = memoryview(path.read_bytes())
    if MAGIC.startswith(bytes(data)):
        return _RankFile(is_cut=True)  # as a full disk leaves it
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise RunError("is not a trace of voxcast", path, THEN)
    content = _RankFile()
    calls: list[np.ndarray] = []
    position = len(MAGIC)
    while position + BLOCK.size <= len(data):
        block, length = BLOCK.unpack_from(data, position)
        body = data[position + BLOCK.size :][:length]
        if block == CALLS:
            calls.append(np.frombuffer(body, RECORD_DTYPE, len(body) // RECORD.size))
        if len(body) < length:
            break
        position += BLOCK.size + length
        if block == CALLS:
            continue
        try:
            _take(content, block, json.loads(bytes(body)))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunError(f"is damaged at byte {position - length}", path, THEN) from None
    content.is_cut = position < len(data)
    if calls:
        content.calls = np.concatenate(calls)
    return content


def _take(content: _RankFile, block: int, values: Any) -> None:
    """Take what a block tells; of another form than it was written in, it is damaged."""
    if block == START:
        numbers = [values[name] for name in ("rank", "size", "wall_ns", "monotonic_ns")]
        fits = all(type(n) is int and 0 <= n < MAX_NS for n in numbers)
        if not fits or not values["rank"] < values["size"] <= MAX_PROCESSES:
            raise ValueError("rank, size or clocks")
        texts = [values["run"], *values["operations"]]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("names")
        content.start = values
    elif block == COMMUNICATOR:
        members = tuple(values["members"])
        if any(type(n) is not int or not 0 <= n < MAX_PROCESSES for n in members):
            raise ValueError("members of a communicator")
        content.communicators.append((members, int(values["earlier"])))
    elif block == END:
        if not 0 <= values["monotonic_ns"] < MAX_NS:
            raise ValueError("clocks")
        values["unrecorded"].items()
        content.end = values


def _table(
    folder: Path, size: int, ranks: dict[int, _RankFile], missing: tuple[str, ...]
) -> EventTable:
    groups: dict[tuple[tuple[int, ...], int], int] = {}
    operations: dict[str, int] = {}
    parts: list[dict[str, np.ndarray]] = []
    start_ns, end_ns = np.zeros((2, size), np.int64)
    for rank, content in sorted(ranks.items()):
        calls = content.calls
        # The last number stands for none: records say -1.
        group = [groups.setdefault(key, len(groups)) for key in content.communicators] + [-1]
        operation = [
            operations.setdefault(name, len(operations)) for name in content.start["operations"]
        ]
        for name, least, stop in (
            ("group", -1, len(group) - 1), ("operation", 0, len(operation)),
            ("start_ns", 0, MAX_NS), ("end_ns", 0, MAX_NS),
        ):  # fmt: skip
            if len(calls) and not least <= calls[name].min() <= calls[name].max() < stop:
                raise RunError(f"the records of rank {rank} are damaged", folder, THEN)
        to_wall_ns = content.start["wall_ns"] - content.start["monotonic_ns"]
        last_ns = int(calls["end_ns"][-1]) if len(calls) else content.start["monotonic_ns"]
        start_ns[rank] = content.start["wall_ns"]
        end_ns[rank] = content.end.get("monotonic_ns", last_ns) + to_wall_ns
        columns = {name: calls[name] for name in ("peer", "tag", "size_bytes", "kind")}
        columns |= {name: calls[name] + to_wall_ns for name in ("start_ns", "end_ns")}
        columns["group"] = np.array(group)[calls["group"]]
        columns["operation"] = np.array(operation)[calls["operation"]]
        columns["computation"] = np.maximum(calls["computation"], 0)
        columns["process"] = np.full(len(calls), rank)
        parts.append(typed_columns(columns))
    return EventTable(
        columns=joined_columns(parts),
        processes=tuple(f"rank {rank}" for rank in range(size)),
        operations=tuple(operations),
        groups=tuple(members for members, _ in groups),
        computation_unit="cpu_ns",
        start_ns=start_ns,
        end_ns=end_ns,
        source=str(folder),
        missing=missing,
    )
