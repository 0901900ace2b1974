"""Records the communication of mpi4py programs as Chrome traces, without a change to them.

``python -m voxcast.phases.recorder --out FOLDER program.py …`` runs the program on every rank with
communicators that record their blocking calls, each rank into a file of its own; nonblocking
calls are counted, and named on standard error at the end (EZTrace records them). The module also
runs by its path: it needs mpi4py and the standard library only, so that it works in the
interpreter of the program. A killed rank leaves all events up to its last second.
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
EXCHANGES = ("Sendrecv", "Sendrecv_replace")
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
NONBLOCKING = (*SENDS, "Recv", *EXCHANGES, *COLLECTIVES, "Dup")  # I*
UNFOLLOWED = (
    "Spawn", "Spawn_multiple", "Accept", "Connect", "Mprobe", "Improbe", "mprobe", "improbe",
    "Create_intercomm",
)  # fmt: skip
FLUSH_NS = 200_000_000
# Time from call to call below which it is taken for CPU time, as reading that clock would cost as
# much as recording the call.
SHORT_NS = 200_000


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
        self._path = folder / f"rank-{world.rank:05d}.json"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        distributed = {"rank": world.rank, "world_size": world.size, "run": run}
        # The CPU clock was read last at `_cpu_read_ns`, and the last call ended at `_end_ns`.
        self._base_ns = self._flush_at_ns = self._end_ns = self._cpu_read_ns = monotonic_ns()
        head = {"schemaVersion": 1, "distributedInfo": distributed,
                "baseTimeNanoseconds": time.time_ns()}  # fmt: skip
        self._write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        self._cpu_ns = thread_time_ns()
        self.record("start", self.begin(), LOCAL)
        atexit.register(self.close)

    def begin(self) -> tuple[int, int]:
        """Return the start of a call and the computation before it; -1 in another thread."""
        if get_ident() != self._thread:
            return 0, -1
        self.pickled_bytes = 0
        start_ns = monotonic_ns()
        computation_ns = start_ns - self._end_ns
        if computation_ns >= SHORT_NS:
            cpu_at_end_ns = self._cpu_ns + self._end_ns - self._cpu_read_ns
            computation_ns = max(min(thread_time_ns() - cpu_at_end_ns, computation_ns), 0)
        return start_ns, computation_ns

    def record(
        self, name: str, begun: tuple[int, int], kind: int, size: int = 0,
        group: int = -1, peer: int = -1, tag: int = -1,
    ) -> None:  # fmt: skip
        """Record a call that ends now."""
        if begun[1] < 0:
            self.count("calls of other threads")
            return
        end_ns = monotonic_ns()
        self._events.append((name, *begun, end_ns, kind, size, group, peer, tag))
        if end_ns >= self._flush_at_ns:
            self.flush()
        if end_ns - self._end_ns >= SHORT_NS:
            self._cpu_ns, self._cpu_read_ns = thread_time_ns(), end_ns
        self._end_ns = end_ns

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
        """Write the events so far; numbers of nanoseconds are the fastest to write."""
        self._write("".join([
            f'{{"ph": "X", "cat": "mpi", "name": "{name}", "ts": {start - self._base_ns}e-3'
            f', "dur": {end - start}e-3, "args": {{"kind": {kind}, "size_bytes": {size}, '
            f'"computation_ns": {computation}, "group": {group}, "peer": {peer}, '
            f'"tag": {tag}}}}},\n'
            for name, start, computation, end, kind, size, group, peer, tag in self._events
        ]))  # fmt: skip
        self._events = []
        self._flush_at_ns = monotonic_ns() + FLUSH_NS

    def close(self) -> None:
        """Write the end; a forked child has none."""
        if self._file < 0 or os.getpid() != self._pid:
            return
        self.record("MPI_Finalize", self.begin(), LOCAL)
        self.flush()
        self._write(f'{{}}], "unrecorded": {json.dumps(self._unrecorded)}}}\n')
        os.close(self._file)
        self._file = -1
        if self._unrecorded:
            calls = ", ".join(f"{count} × {name}" for name, count in self._unrecorded.items())
            print(f"voxcast: {self._path}: calls not recorded: {calls}", file=sys.stderr)

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


def largest_of(arguments: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Return the bytes that a collective sends or receives; its communicator comes first."""
    try:  # two arrays, in a third of the time
        return int(max(arguments[1].nbytes, arguments[2].nbytes))
    except (AttributeError, IndexError):
        return max(map(size_of, (*arguments[1:3], *options.values())), default=0)


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
        types[base] = type(f"Traced{base.__name__}", (base,), _methods(base, recorder, types))
    setattr(MPI, "COMM_WORLD", recorder.traced(MPI.COMM_WORLD, types))  # noqa: B010
    return recorder


def _methods(plain: Any, recorder: Recorder, types: Any) -> dict[str, Any]:
    """Return the methods of a traced communicator by name."""
    mpi, begin = recorder.mpi, recorder.begin

    def message(name: str, call: Any) -> Any:
        sends, receives = name != "MPI_Recv", name.removeprefix("MPI_") not in SENDS
        signature = inspect.signature(call)
        defaults = [parameter.default for parameter in signature.parameters.values()]

        def traced(*arguments: Any, **options: Any) -> Any:
            if options:
                bound = signature.bind(*arguments, **options)
                bound.apply_defaults()
                arguments = bound.args
            values = [*arguments, *defaults[len(arguments) :]]
            if receives and values[-1] is None:
                values[-1] = mpi.Status()
            begun = begin()
            result = call(*values)
            if sends:
                recorder.sent(name, begun, *values[:4])
            if receives:
                recorder.received(name, begin() if sends else begun, values[0], values[-1])
            return result

        return traced

    def collective(name: str, call: Any) -> Any:
        def traced(*arguments: Any, **options: Any) -> Any:
            begun = begin()
            result = call(*arguments, **options)
            size = recorder.pickled_bytes or largest_of(arguments, options)
            recorder.record(name, begun, COLLECTIVE, size, arguments[0].number)
            return result

        return traced

    def create(name: str, call: Any) -> Any:
        # Create_group is a matter of the members of the group only.
        kind = LOCAL if name == "MPI_Create_group" else COLLECTIVE
        label = f"MPI_Comm_{name.removeprefix('MPI_').lower()}"

        def traced(*arguments: Any, **options: Any) -> Any:
            begun = begin()
            communicator = call(*arguments, **options)
            recorder.record(
                label, begun, kind, 0, arguments[0].number if kind == COLLECTIVE else -1
            )
            return recorder.traced(communicator, types)

        return traced

    def probe(name: str, call: Any) -> Any:
        def traced(*arguments: Any, **options: Any) -> Any:
            begun = begin()
            is_there = call(*arguments, **options)
            if is_there:  # else its time is computation
                recorder.record(name, begun, LOCAL)
            return is_there

        return traced

    def counted(name: str, call: Any) -> Any:
        def traced(*arguments: Any, **options: Any) -> Any:
            recorder.count(name)
            return call(*arguments, **options)

        return traced

    def abort(self: Any, errorcode: int = 0) -> None:
        recorder.flush()
        plain.Abort(self, errorcode)

    makers = {
        **dict.fromkeys((*SENDS, "Recv", *EXCHANGES), message),
        **dict.fromkeys(COLLECTIVES, collective),
        **dict.fromkeys(CREATORS, create),
        **dict.fromkeys(("Probe", "Iprobe"), probe),
    }
    methods: dict[str, Any] = {"Abort": abort}
    for name in dir(plain):
        maker = makers.get(name.capitalize())  # of buffers, or of objects
        if maker is not None:
            methods[name] = maker(f"MPI_{name.capitalize()}", getattr(plain, name))
        elif name.endswith("_init") or name in UNFOLLOWED or _is_nonblocking(name):
            methods[name] = counted(name, getattr(plain, name))
    return methods


def _is_nonblocking(name: str) -> bool:
    return name[0] in "Ii" and name[1:].capitalize() in NONBLOCKING


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
