"""Records the communication of mpi4py programs, without a change to them.

``python -m voxcast.phases.mpi_recorder --out FOLDER program.py …`` runs the program on every rank
with traced communicators and requests; each rank appends to a file of its own. The module also
runs by its path: it needs mpi4py and the standard library only, not the rest of voxcast, so that
it works in any interpreter that the program needs.

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
import threading
import time
import traceback
from pathlib import Path
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

BUFFERED_CALLS = 1024
FLUSH_NS = 1_000_000_000
# A thread that computes keeps its CPU for a slice of the scheduler, which is longer: what passes
# between two calls in less is CPU time, and the slow clock of it need not be read.
SHORT_NS = 200_000
OTHER_THREAD = -1


class Tape:
    """Calls of this process on their way to its file.

    Computation is CPU time of the thread that calls MPI, between the end of a call and the start
    of the next. Calls of other threads are counted, not recorded.
    """

    # Of voxcast.phases.events.Kind.
    SEND, RECEIVE, COLLECTIVE, LOCAL = range(4)

    def __init__(self, path: Path, byte: Any) -> None:
        self._byte = byte
        self.operations: dict[str, int] = {}
        self.unrecorded: dict[str, int] = {}
        self.communicators: dict[tuple[int, ...], int] = {}
        self.pickled_bytes = 0
        self.thread = threading.get_ident()
        self.pid = os.getpid()
        self._buffer = bytearray(RECORD.size * BUFFERED_CALLS)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(self._file, MAGIC)
        self._length = 0
        self._groups = 0
        self._skipped_ns = 0
        self.end_ns = self._flushed_ns = time.monotonic_ns()
        self._entry_cpu_ns = self._exit_cpu_ns = time.thread_time_ns()

    def start(self, content: dict[str, Any]) -> None:
        """Write the start, with what the records refer to; computation counts from here."""
        self.number("MPI_Finalize")
        self.end_ns = time.monotonic_ns()
        clocks = {"monotonic_ns": self.end_ns, "wall_ns": time.time_ns()}
        self._append_json(START, content | clocks | {"operations": list(self.operations)})
        self._exit_cpu_ns = time.thread_time_ns()

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
        if threading.get_ident() != self.thread:
            return OTHER_THREAD
        start_ns = time.monotonic_ns()
        if start_ns - self.end_ns >= SHORT_NS:
            self._entry_cpu_ns = time.thread_time_ns()
        self.pickled_bytes = 0
        return start_ns

    def record(
        self, start_ns: int, kind: int, operation: int, peer: int, tag: int, group: int, size: int
    ) -> None:
        """Record a call that ends now."""
        if start_ns == OTHER_THREAD:
            self.count_unrecorded("calls of other threads")
            return
        gap_ns = start_ns - self.end_ns
        if gap_ns >= SHORT_NS:
            gap_ns = self._entry_cpu_ns - self._exit_cpu_ns
        end_ns = time.monotonic_ns()
        RECORD.pack_into(
            self._buffer, self._length,
            start_ns, end_ns, gap_ns + self._skipped_ns, size, peer, tag, group, operation, kind,
        )  # fmt: skip
        self._skipped_ns = 0
        self._length += RECORD.size
        if self._length == len(self._buffer) or end_ns - self._flushed_ns >= FLUSH_NS:
            self.flush()
            end_ns = time.monotonic_ns()
        self.end_ns = end_ns
        self._exit_cpu_ns = time.thread_time_ns()

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
        gap_ns = start_ns - self.end_ns
        if gap_ns >= SHORT_NS:
            gap_ns = self._entry_cpu_ns - self._exit_cpu_ns
        self._skipped_ns += gap_ns
        self.end_ns = time.monotonic_ns()
        self._exit_cpu_ns = time.thread_time_ns()

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
        """Return the larger of what a collective sends and receives here."""
        if len(arguments) >= 2 and not options:  # the usual case, in a third of the time
            try:
                sent: int = arguments[0].nbytes
                received: int = arguments[1].nbytes
            except AttributeError:
                pass
            else:
                return sent if sent > received else received
        return max(map(Tape.size_of, (*arguments[:2], *options.values())), default=0)

    def flush(self) -> None:
        """Append what is buffered to the file."""
        if self._length:
            self._append(CALLS, bytes(memoryview(self._buffer)[: self._length]))
            self._length = 0
        self._flushed_ns = time.monotonic_ns()

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
    _beside("mpi_calls").replace(MPI, tape, request_type)
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
