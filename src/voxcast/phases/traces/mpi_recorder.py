"""Records the communication of mpi4py programs, without a change to them.

``python -m voxcast.phases.traces.mpi_recorder --out FOLDER program.py …`` runs the program on
every rank with traced communicators and requests; each rank appends to a file of its own. The
module also runs by its path: it needs mpi4py and the standard library only, not the rest of
voxcast, so that it works in any interpreter that the program needs.

A file is a line ``MAGIC`` and blocks of 8 bytes (type, length; little-endian) and content: JSON
for the start, a communicator and the end, packed ``RECORD`` for calls. Blocks are appended when a
buffer is full and at least every second of calls; a killed rank leaves all before, without an end.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import json
import os
import runpy
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from threading import get_ident
from time import monotonic_ns, thread_time_ns
from typing import Any

MAGIC = b"VOXCAST MPI TRACE 1\n"
SUFFIX = ".mpitrace"
BLOCK = struct.Struct("<II")
START, COMMUNICATOR, CALLS, END = 1, 2, 3, 4
RECORD_FIELDS = (
    ("start_ns", "q"), ("end_ns", "q"), ("computation", "q"), ("size_bytes", "q"),
    ("peer", "i"), ("tag", "i"), ("group", "i"), ("operation", "h"), ("kind", "h"),
)  # fmt: skip
RECORD = struct.Struct("<" + "".join(code for _, code in RECORD_FIELDS))

pack_into, RECORD_SIZE = RECORD.pack_into, RECORD.size

BUFFER_SIZE = 1024 * RECORD_SIZE
FLUSH_NS = 1_000_000_000
# A thread that computes, or polls for a message, keeps its CPU for a slice of the scheduler, which
# is longer: what passes in less is taken for CPU time. The clock of that costs as much as the rest
# of a record, so that it is read after so long only, and from time to time.
SHORT_NS, CLOCK_NS = 200_000, 2_000_000
OTHER_THREAD = -1


class Tape:
    """Calls of this process on their way to its file.

    Computation is CPU time of the thread that calls MPI, between the end of a call and the start
    of the next. Calls of other threads are counted, not recorded.
    """

    # Of voxcast.phases.traces.events.Kind.
    SEND, RECEIVE, COLLECTIVE, LOCAL = range(4)

    def __init__(self, path: Path, byte: Any) -> None:
        self._byte = byte
        self.operations: dict[str, int] = {}
        self.unrecorded: dict[str, int] = {}
        self.communicators: dict[tuple[int, ...], int] = {}
        self.pickled_bytes = 0
        self.thread = get_ident()
        self.pid = os.getpid()
        self._buffer = bytearray(BUFFER_SIZE)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(self._file, MAGIC)
        self._length = 0
        self._groups = 0
        # Computation before the next call is its start less `_since_ns`: mostly the end of the
        # last call, see `_count_cpu`.
        self._end_ns = self._since_ns = self._cpu_ns = self._cpu_read_ns = self._due_ns = 0
        self._flushed_ns = monotonic_ns()
        self._continue_from_here()

    def start(self, content: dict[str, Any]) -> None:
        """Write the start, with what the records refer to; computation counts from here."""
        self.number("MPI_Finalize")
        clocks = {"monotonic_ns": monotonic_ns(), "wall_ns": time.time_ns()}
        self._append_json(START, content | clocks | {"operations": list(self.operations)})
        self._continue_from_here()

    def number(self, operation: str) -> int:
        """Return the number of an operation in the records."""
        return self.operations.setdefault(operation, len(self.operations))

    def add_communicator(self, members: tuple[int, ...]) -> int:
        """Write a communicator and return its number.

        All members make the communicators of one membership in the same order, so that members
        and how many went before name it across ranks.
        """
        earlier = self.communicators.get(members, 0)
        self.communicators[members] = earlier + 1
        self._append_json(COMMUNICATOR, {"members": members, "earlier": earlier})
        self._groups += 1
        return self._groups - 1

    def begin(self) -> int:
        """Return the start of a call; the end of what was computed before it."""
        if get_ident() != self.thread:
            return OTHER_THREAD
        start_ns = monotonic_ns()
        if start_ns - self._end_ns >= SHORT_NS:
            self._count_cpu(start_ns)
        self.pickled_bytes = 0
        return start_ns

    def _count_cpu(self, start_ns: int) -> None:
        """Count the CPU time since the last call, not the time that passed."""
        cpu_ns = thread_time_ns()
        gap_ns = cpu_ns - self._cpu_ns - (self._end_ns - self._cpu_read_ns)
        self._since_ns += start_ns - self._end_ns - gap_ns
        self._cpu_ns, self._cpu_read_ns = cpu_ns, start_ns

    def record(
        self, start_ns: int, kind: int, operation: int, peer: int, tag: int, group: int, size: int
    ) -> None:
        """Record a call that ends now."""
        if start_ns == OTHER_THREAD:
            self.count_unrecorded("calls of other threads")
            return
        end_ns = monotonic_ns()
        length = self._length
        pack_into(
            self._buffer, length,
            start_ns, end_ns, start_ns - self._since_ns, size, peer, tag, group, operation, kind,
        )  # fmt: skip
        self._end_ns = self._since_ns = end_ns
        self._length = length = length + RECORD_SIZE
        if end_ns >= self._due_ns or end_ns - start_ns >= SHORT_NS or length == BUFFER_SIZE:
            if length == BUFFER_SIZE or end_ns - self._flushed_ns >= FLUSH_NS:
                self.flush()
            self._continue_from_here()

    def _continue_from_here(self) -> None:
        """Count computation from here, by both clocks, beside what is counted."""
        self._cpu_ns = thread_time_ns()
        counted_ns = self._end_ns - self._since_ns
        self._end_ns = self._cpu_read_ns = monotonic_ns()
        self._since_ns = self._end_ns - counted_ns
        self._due_ns = self._end_ns + CLOCK_NS

    def record_receive(
        self, start_ns: int, operation: int, communicator: Any, status: Any
    ) -> None:
        """Record a receive, of which the status tells the rest; from no process, a local call."""
        source = status.source
        if source < 0:
            self.record(start_ns, self.LOCAL, operation, -1, -1, -1, 0)
            return
        self.record(
            start_ns, self.RECEIVE, operation, communicator.members[source], status.tag,
            communicator.number, status.Get_count(self._byte),
        )  # fmt: skip

    def skip(self, start_ns: int) -> None:
        """Leave out a call that did nothing, such as a test that failed, and its time."""
        if start_ns == OTHER_THREAD:
            return
        counted_ns = start_ns - self._since_ns
        self._end_ns = monotonic_ns()
        self._since_ns = self._end_ns - counted_ns
        if self._end_ns >= self._due_ns or self._end_ns - start_ns >= SHORT_NS:
            self._continue_from_here()

    def count_unrecorded(self, name: str) -> None:
        """Count a call that is not recorded, so that the trace does not pass for complete."""
        self.unrecorded[name] = self.unrecorded.get(name, 0) + 1

    @staticmethod
    def size_of(buffer: Any) -> int:
        """Return the bytes of a buffer argument of mpi4py: an array, or a list with its count."""
        try:
            return int(buffer.nbytes)
        except AttributeError:
            pass
        if isinstance(buffer, list | tuple) and buffer:
            data, *rest = buffer
            counts = [part for part in rest if type(part) is int]
            if counts and hasattr(rest[-1], "Get_size"):
                return counts[0] * int(rest[-1].Get_size())
            return Tape.size_of(data)
        try:
            return memoryview(buffer).nbytes
        except TypeError:
            return 0  # in place, none, or not a buffer

    @staticmethod
    def bytes_of(arguments: tuple[Any, ...], options: dict[str, Any]) -> int:
        """Return the larger of what a collective sends and receives; the communicator is first."""
        try:  # the usual case, in a third of the time
            sent: int = arguments[1].nbytes
            received: int = arguments[2].nbytes
        except (AttributeError, IndexError):
            return max(map(Tape.size_of, (*arguments[1:3], *options.values())), default=0)
        return sent if sent > received else received

    def flush(self) -> None:
        """Append what is buffered to the file."""
        if self._length:
            self._append(CALLS, bytes(memoryview(self._buffer)[: self._length]))
            self._length = 0
        self._flushed_ns = monotonic_ns()

    def close(self) -> None:
        """Append the end; nothing in a forked child."""
        if self._file < 0 or os.getpid() != self.pid:
            return
        start_ns = self.begin()
        self.record(start_ns, self.LOCAL, self.number("MPI_Finalize"), -1, -1, -1, 0)
        self.flush()
        self._append_json(END, {"monotonic_ns": start_ns, "unrecorded": self.unrecorded})
        os.close(self._file)
        self._file = -1

    def _append_json(self, block: int, content: dict[str, Any]) -> None:
        self._append(block, json.dumps(content).encode())

    def _append(self, block: int, content: bytes) -> None:
        data = memoryview(BLOCK.pack(block, len(content)) + content)
        while data:
            data = data[os.write(self._file, data) :]


def start_recording(folder: Path) -> Tape:
    """Replace the communicators and requests of mpi4py, on all ranks at once.

    Parameters
    ----------
    folder : Path
        Gets a file for each rank.

    Raises
    ------
    FileExistsError
        If it holds one of the same name.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    run = world.bcast(f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}")
    folder.mkdir(parents=True, exist_ok=True)
    tape = Tape(folder / f"rank-{world.rank:05d}{SUFFIX}", MPI.BYTE)
    request_type = _beside("mpi_requests").request_type(MPI, tape)
    _beside("mpi_communicators").replace(MPI, tape, request_type, _beside("mpi_calls"))
    setattr(MPI, "Request", request_type)  # noqa: B010
    world.Barrier()
    tape.start({"run": run, "rank": world.rank, "size": world.size, "host": socket.gethostname()})
    atexit.register(tape.close)
    return tape


def _beside(name: str) -> Any:
    """Import a module of this folder, whether voxcast is installed or not."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"voxcast_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run a program with its communication recorded."""
    parser = argparse.ArgumentParser(prog="mpi_recorder", description="Record an mpi4py program.")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    tape = start_recording(args.out.absolute())
    from mpi4py import MPI

    sys.argv = [args.program, *args.arguments]
    # As without the recorder: the folder of the program comes first, not that of this file.
    sys.path[0] = str(Path.cwd() if args.module else Path(args.program).resolve().parent)
    try:
        if args.module:
            runpy.run_module(args.program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(args.program, run_name="__main__")
    except Exception:
        # Other ranks would wait for this one for ever.
        traceback.print_exc()
        tape.flush()
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main()
