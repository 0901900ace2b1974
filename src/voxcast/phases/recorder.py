"""Records the communication of mpi4py programs as Chrome traces, without a change to them.

``python -m voxcast.phases.recorder --out FOLDER program.py …`` runs the program on every rank with
communicators that record their blocking calls, each rank into a file of its own; nonblocking
messages are counted (EZTrace records them). The module also runs by its path: it needs mpi4py and
the standard library only, so that it works in the interpreter of the program. A killed rank leaves
all events up to its last second.
"""

from __future__ import annotations

import argparse
import atexit
import inspect
import json
import os
import runpy
import socket
import sys
import time
import traceback
from pathlib import Path
from threading import get_ident
from time import monotonic_ns, thread_time_ns
from typing import Any

SEND, RECEIVE, COLLECTIVE, LOCAL = range(4)  # of voxcast.phases.events.Kind
SENDS = ("Send", "Ssend", "Bsend", "Rsend")
COLLECTIVES = (
    "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv",
    "Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter",
    "Reduce_scatter_block", "Scan", "Exscan",
)  # fmt: skip
CREATORS = (
    "Dup", "Clone", "Split", "Split_type", "Create", "Create_cart", "Create_graph", "Sub",
    "Create_dist_graph", "Create_dist_graph_adjacent", "Create_group",
)  # fmt: skip
# Calls with messages that are only counted, besides persistent requests (``*_init``).
NONBLOCKING = (*SENDS, "Recv", "Sendrecv", "Sendrecv_replace", *COLLECTIVES, "Dup")  # I*
UNFOLLOWED = (
    "Spawn", "Spawn_multiple", "Accept", "Connect", "Sendrecv_replace", "Mprobe", "Improbe",
    "mprobe", "improbe", "Create_intercomm",
)  # fmt: skip
BUFFERED = 4096  # events
FLUSH_NS = 1_000_000_000


class Recorder:
    """Calls of this process on their way to its file.

    Computation is CPU time of the thread that calls MPI, from the end of a call to the start of
    the next. Calls of other threads are counted, not recorded.
    """

    def __init__(self, mpi: Any, folder: Path) -> None:
        world = mpi.COMM_WORLD
        run = world.bcast(f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}")
        folder.mkdir(parents=True, exist_ok=True)
        self.mpi = mpi
        self.pickled_bytes = 0
        self._world_group = world.Get_group()
        self._communicators: dict[tuple[int, ...], int] = {}
        self._groups = 0
        self._unrecorded: dict[str, int] = {}
        self._events: list[tuple[Any, ...]] = []
        self._thread, self._pid = get_ident(), os.getpid()
        path = folder / f"rank-{world.rank:05d}.json"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        distributed = {"rank": world.rank, "world_size": world.size, "run": run}
        start_ns = self._flushed_ns = monotonic_ns()
        self._base_ns = start_ns
        head = {"schemaVersion": 1, "distributedInfo": distributed,
                "baseTimeNanoseconds": time.time_ns()}  # fmt: skip
        self._write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        self._cpu_ns = thread_time_ns()
        self.record("start", self.begin(), LOCAL)
        atexit.register(self.close)

    def begin(self) -> tuple[int, int]:
        """Return the start of a call, and the computation before it."""
        self.pickled_bytes = 0
        return monotonic_ns(), thread_time_ns() - self._cpu_ns

    def record(
        self, name: str, begun: tuple[int, int], kind: int, size: int = 0,
        group: int = -1, peer: int = -1, tag: int = -1,
    ) -> None:  # fmt: skip
        """Record a call that ends now."""
        if get_ident() != self._thread:
            self.count("calls of other threads")
            return
        end_ns = monotonic_ns()
        self._events.append((name, *begun, end_ns, kind, size, group, peer, tag))
        if len(self._events) == BUFFERED or end_ns - self._flushed_ns >= FLUSH_NS:
            self.flush()
        self._cpu_ns = thread_time_ns()

    def received(self, name: str, begun: tuple[int, int], communicator: Any, status: Any) -> None:
        """Record a receive by its status; from no process it is local."""
        if status.source < 0:
            self.record(name, begun, LOCAL)
            return
        size, peer = status.Get_count(self.mpi.BYTE), communicator.members[status.source]
        self.record(name, begun, RECEIVE, size, communicator.number, peer, status.tag)

    def sent(
        self, name: str, begun: tuple[int, int], communicator: Any, data: Any, dest: int, tag: int
    ) -> None:
        """Record a send; to no process it is local."""
        if dest < 0:
            self.record(name, begun, LOCAL)
            return
        size, peer = self.pickled_bytes or size_of(data), communicator.members[dest]
        self.record(name, begun, SEND, size, communicator.number, peer, tag)

    def count(self, name: str) -> None:
        """Count a call that is not recorded, so that the trace does not seem complete."""
        self._unrecorded[name] = self._unrecorded.get(name, 0) + 1

    def flush(self) -> None:
        """Write the events so far."""
        self._write("".join(
            f'{{"ph": "X", "cat": "mpi", "name": "{name}", "ts": {(start - self._base_ns) / 1000}'
            f', "dur": {(end - start) / 1000}, "args": {{"kind": {kind}, "size_bytes": {size}, '
            f'"computation_ns": {max(computation, 0)}, "group": {group}, "peer": {peer}, '
            f'"tag": {tag}}}}},\n'
            for name, start, computation, end, kind, size, group, peer, tag in self._events
        ))  # fmt: skip
        self._events = []
        self._flushed_ns = monotonic_ns()

    def close(self) -> None:
        """Write the end; a forked child has none."""
        if self._file < 0 or os.getpid() != self._pid:
            return
        self.record("MPI_Finalize", self.begin(), LOCAL)
        self.flush()
        self._write(f'{{}}], "unrecorded": {json.dumps(self._unrecorded)}}}\n')
        os.close(self._file)
        self._file = -1

    def _write(self, text: str) -> None:
        data = memoryview(text.encode())
        while data:
            data = data[os.write(self._file, data) :]

    def traced(self, communicator: Any, types: dict[type, type]) -> Any:
        """Return a communicator that records, with a number and its members in the world.

        All members make the communicators of one membership in the same order, so that members
        and the number of earlier ones identify it across ranks.
        """
        if communicator == self.mpi.COMM_NULL or communicator.Is_inter():
            return communicator
        group = communicator.Get_group()
        members = tuple(self.mpi.Group.Translate_ranks(group, None, self._world_group))
        group.Free()
        plain = next(base for base in type(communicator).__mro__ if base in types)
        wrapped = types[plain](communicator)
        wrapped.members, wrapped.number = members, self._groups
        earlier = self._communicators.get(members, 0)
        self._communicators[members] = earlier + 1
        self._groups += 1
        arguments = {"number": wrapped.number, "ranks": members, "earlier": earlier}
        event = {"ph": "M", "name": "communicator", "args": arguments}
        self._write(json.dumps(event) + ",\n")
        return wrapped


def size_of(buffer: Any) -> int:
    """Return the bytes of a buffer argument of mpi4py: an array, or a list with its count."""
    if hasattr(buffer, "nbytes"):
        return int(buffer.nbytes)
    if isinstance(buffer, list | tuple) and buffer:
        data, *rest = buffer
        counts = [part for part in rest if type(part) is int]
        if counts and hasattr(rest[-1], "Get_size"):
            return counts[0] * int(rest[-1].Get_size())
        return size_of(data)
    try:
        return memoryview(buffer).nbytes
    except TypeError:
        return 0  # in place, None, or not a buffer


def start_recording(folder: Path) -> Recorder:
    """Replace the communicators of mpi4py, on all ranks at once."""
    from mpi4py import MPI

    recorder = Recorder(MPI, folder)
    plain: Any = MPI.Pickle()
    shared: Any = MPI.pickle

    def dumps(value: Any, _protocol: int) -> Any:
        data = plain.dumps(value)
        recorder.pickled_bytes += len(data)
        return data

    def loads(data: Any) -> Any:
        recorder.pickled_bytes = max(recorder.pickled_bytes, len(data))
        return plain.loads(data)

    shared.__init__(dumps, loads, shared.PROTOCOL)
    types: dict[type, type] = {}
    for base in (MPI.Intracomm, MPI.Cartcomm, MPI.Graphcomm, MPI.Distgraphcomm):
        methods = _methods(base, recorder, types)
        types[base] = type(f"Traced{base.__name__}", (base,), methods)
    setattr(MPI, "COMM_WORLD", recorder.traced(MPI.COMM_WORLD, types))  # noqa: B010
    return recorder


def _methods(plain: Any, recorder: Recorder, types: Any) -> dict[str, Any]:
    """Return the methods of a traced communicator by name."""
    mpi = recorder.mpi

    def send(name: str, call: Any) -> Any:
        def traced(
            self: Any, buf: Any = None, dest: int = 0, tag: int = 0, **content: Any
        ) -> None:
            data, begun = content.get("obj", buf), recorder.begin()
            call(self, data, dest, tag)
            recorder.sent(name, begun, self, data, dest, tag)

        return traced

    def receive(name: str, call: Any) -> Any:
        def traced(
            self: Any, buf: Any = None, source: int = mpi.ANY_SOURCE, tag: int = mpi.ANY_TAG,
            status: Any = None,
        ) -> Any:  # fmt: skip
            status, begun = mpi.Status() if status is None else status, recorder.begin()
            message = call(self, buf, source, tag, status)
            recorder.received(name, begun, self, status)
            return message

        return traced

    def exchange(name: str, call: Any) -> Any:
        def traced(*arguments: Any, **options: Any) -> Any:
            bound = inspect.signature(call).bind(*arguments, **options)
            bound.apply_defaults()
            self, data, dest, tag, *_, status = bound.arguments.values()
            status, begun = mpi.Status() if status is None else status, recorder.begin()
            message = call(*bound.args[:-1], status)
            recorder.sent(name, begun, self, data, dest, tag)
            recorder.received(name, recorder.begin(), self, status)
            return message

        return traced

    def collective(name: str, call: Any) -> Any:
        def traced(*arguments: Any, **options: Any) -> Any:
            begun = recorder.begin()
            result = call(*arguments, **options)
            data = (*arguments[1:3], *options.values())
            size = recorder.pickled_bytes or max(map(size_of, data), default=0)
            recorder.record(name, begun, COLLECTIVE, size, arguments[0].number)
            return result

        return traced

    def create(name: str, call: Any) -> Any:
        def traced(*arguments: Any, **options: Any) -> Any:
            begun = recorder.begin()
            communicator = call(*arguments, **options)
            # Create_group is a matter of the members of the group only.
            kind = LOCAL if name == "MPI_Create_group" else COLLECTIVE
            label = f"MPI_Comm_{name.removeprefix('MPI_').lower()}"
            recorder.record(label, begun, kind, 0, arguments[0].number if kind else -1)
            return recorder.traced(communicator, types)

        return traced

    def abort(self: Any, errorcode: int = 0) -> None:
        recorder.flush()
        plain.Abort(self, errorcode)

    methods: dict[str, Any] = {"Abort": abort}
    for name in dir(plain):
        if name.endswith("_init") or name in UNFOLLOWED or _is_nonblocking(name):
            methods[name] = _counted(recorder, name, getattr(plain, name))
    for names, maker in (
        (SENDS, send), (("Recv",), receive), (("Sendrecv",), exchange),
        (COLLECTIVES, collective), (CREATORS, create),
    ):  # fmt: skip
        for name in names:
            for spelling in {name, name.lower()}:  # of buffers and of objects
                if hasattr(plain, spelling):
                    methods[spelling] = maker(f"MPI_{name}", getattr(plain, spelling))
    return methods


def _is_nonblocking(name: str) -> bool:
    return name[0] in "Ii" and name[1:].capitalize() in NONBLOCKING


def _counted(recorder: Recorder, name: str, call: Any) -> Any:
    def traced(*arguments: Any, **options: Any) -> Any:
        recorder.count(name)
        return call(*arguments, **options)

    return traced


def main() -> None:
    """Run a program with its communication recorded."""
    parser = argparse.ArgumentParser(prog="recorder", description="Record an mpi4py program.")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    recorder = start_recording(args.out.absolute())
    sys.argv = [args.program, *args.arguments]
    if not sys.flags.safe_path:
        # As without the recorder: the folder of the program comes first, not the folder of this
        # file. With `python -P` the first entry is another one, which must stay.
        sys.path[0] = str(Path.cwd() if args.module else Path(args.program).resolve().parent)
    try:
        if args.module:
            runpy.run_module(args.program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(args.program, run_name="__main__")
    except Exception:
        # Other ranks would wait for this one for ever.
        traceback.print_exc()
        recorder.mpi.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main()
