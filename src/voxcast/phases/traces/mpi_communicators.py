"""Communicators of mpi4py that record their calls; for `mpi_recorder` only.

Imports neither mpi4py, which is an argument, nor anything of voxcast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

SENDS = ("Send", "Ssend", "Bsend", "Rsend")
COLLECTIVES = (
    "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv",
    "Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter",
    "Reduce_scatter_block", "Scan", "Exscan",
)  # fmt: skip
# The result is a communicator.
CREATORS = (
    "Dup", "Dup_with_info", "Clone", "Split", "Split_type", "Create", "Create_cart",
    "Create_graph", "Create_dist_graph", "Create_dist_graph_adjacent", "Create_group", "Shrink",
)  # fmt: skip
# Calls whose messages the recorder does not follow, besides persistent requests (``*_init``):
# they are counted, so that the trace does not pass for complete.
UNFOLLOWED = (
    "Spawn", "Spawn_multiple", "Accept", "Connect", "Isendrecv", "Isendrecv_replace", "Mprobe",
    "Improbe", "mprobe", "improbe", "Create_intercomm", "Idup", "Idup_with_info",
)  # fmt: skip


def replace(mpi: Any, tape: Any, request_type: Any, calls: Any) -> None:
    """Put traced communicators in the place of those of mpi4py.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.
    tape : Tape
        Of `mpi_recorder`.
    request_type : type
        Of `mpi_requests`.
    calls : module
        `mpi_calls`.
    """
    _count_pickles(mpi, tape)
    world_group = mpi.COMM_WORLD.Get_group()
    types: dict[type, type] = {}

    def traced(communicator: Any) -> Any:
        """Return a communicator that records, with a number and the ranks of its members."""
        if communicator == mpi.COMM_NULL or communicator.Is_inter():
            return communicator
        group = communicator.Get_group()
        members = mpi.Group.Translate_ranks(group, None, world_group)
        group.Free()
        plain = next(base for base in type(communicator).__mro__ if base in types)
        wrapped = types[plain](communicator)
        wrapped.members = tuple(members)
        wrapped.number = tape.add_communicator(wrapped.members)
        return wrapped

    methods = _methods(mpi, tape, traced, request_type, calls)
    for plain in (mpi.Intracomm, mpi.Cartcomm, mpi.Graphcomm, mpi.Distgraphcomm):
        types[plain] = type(f"Traced{plain.__name__}", (plain,), dict(methods))
    sub = calls.creator_call(mpi.Cartcomm.Sub, "Sub", tape, traced)
    setattr(types[mpi.Cartcomm], "Sub", sub)  # noqa: B010
    mpi.COMM_WORLD = traced(mpi.COMM_WORLD)


def _count_pickles(mpi: Any, tape: Any) -> None:
    plain = mpi.Pickle()

    def dumps(value: Any, _protocol: int) -> Any:
        data = plain.dumps(value)
        tape.pickled_bytes += len(data)
        return data

    def loads(data: Any) -> Any:
        tape.pickled_bytes = max(tape.pickled_bytes, len(data))
        return plain.loads(data)

    mpi.pickle.__init__(dumps, loads, mpi.pickle.PROTOCOL)


def _methods(mpi: Any, tape: Any, traced: Any, request_type: Any, calls: Any) -> dict[str, Any]:
    """Return the methods of traced communicators by name."""
    plain = mpi.Intracomm
    methods: dict[str, Any] = {"Abort": calls.abort_call(plain.Abort, tape)}

    def add(names: Iterable[str], method: Any, *context: Any) -> None:
        """Add a method in all spellings that mpi4py has: of buffers and of objects."""
        for name in names:
            for spelling in {name, name.lower()}:
                if hasattr(plain, spelling):
                    methods[spelling] = method(getattr(plain, spelling), name, tape, *context)

    add(SENDS, calls.send_call)
    add((f"I{name.lower()}" for name in SENDS), calls.isend_call, request_type)
    add(("Recv",), calls.recv_call, mpi)
    add(("Irecv",), calls.irecv_call, mpi, request_type)
    add(("Sendrecv", "Sendrecv_replace"), calls.sendrecv_call, mpi)
    add(COLLECTIVES, calls.collective_call)
    add((f"I{name.lower()}" for name in COLLECTIVES), calls.icollective_call, request_type)
    add(CREATORS, calls.creator_call, traced)
    add(("Probe", "Iprobe"), calls.probe_call)
    add((n for n in dir(plain) if n.endswith("_init") or n in UNFOLLOWED), calls.unfollowed_call)
    return methods
