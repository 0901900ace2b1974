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


def replace(mpi: Any, tape: Any, request_type: Any) -> None:
    """Put traced communicators in the place of those of mpi4py.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.
    tape : Tape
        Of `mpi_recorder`.
    request_type : type
        Of `mpi_requests`.
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

    methods = _methods(mpi, tape, traced, request_type)
    for plain in (mpi.Intracomm, mpi.Cartcomm, mpi.Graphcomm, mpi.Distgraphcomm):
        types[plain] = type(f"Traced{plain.__name__}", (plain,), dict(methods))
    sub = _creator(mpi.Cartcomm.Sub, "Sub", tape, traced)
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


def _methods(mpi: Any, tape: Any, traced: Any, request_type: Any) -> dict[str, Any]:
    """Return the methods of traced communicators by name."""
    plain = mpi.Intracomm
    methods: dict[str, Any] = {"Abort": _aborting(plain.Abort, tape)}

    def add(names: Iterable[str], method: Any, *context: Any) -> None:
        """Add a method in all spellings that mpi4py has: of buffers and of objects."""
        for name in names:
            for spelling in {name, name.lower()}:
                if hasattr(plain, spelling):
                    methods[spelling] = method(getattr(plain, spelling), name, tape, *context)

    add(SENDS, _send)
    add((f"I{name.lower()}" for name in SENDS), _isend, request_type)
    add(("Recv",), _recv, mpi)
    add(("Irecv",), _irecv, mpi, request_type)
    add(("Sendrecv", "Sendrecv_replace"), _sendrecv, mpi)
    add(COLLECTIVES, _collective)
    add((f"I{name.lower()}" for name in COLLECTIVES), _icollective, request_type)
    add(CREATORS, _creator, traced)
    add(("Probe", "Iprobe"), _probe)
    add((n for n in dir(plain) if n.endswith("_init") or n in UNFOLLOWED), _unfollowed)
    return methods


def _send(plain: Any, name: str, tape: Any) -> Any:
    operation, kind = tape.number(f"MPI_{name}"), tape.SEND
    begin, record, is_buffer = tape.begin, tape.record, plain.__name__[0].isupper()

    def send(self: Any, buf: Any, dest: int, tag: int = 0) -> None:
        start_ns = begin()
        plain(self, buf, dest, tag)
        if dest < 0:
            record(start_ns, tape.LOCAL, operation, -1, -1, -1, 0)
            return
        size = tape.size_of(buf) if is_buffer else tape.pickled_bytes
        record(start_ns, kind, operation, self.members[dest], tag, self.number, size)

    def send_object(self: Any, *arguments: Any, **options: Any) -> None:
        if "obj" in options:
            options["buf"] = options.pop("obj")
        send(self, *arguments, **options)

    return send if is_buffer else send_object


def _isend(plain: Any, name: str, tape: Any, request_type: Any) -> Any:
    operation, is_buffer = tape.number(f"MPI_{name}"), plain.__name__[0].isupper()

    def isend(self: Any, buf: Any, dest: int, tag: int = 0) -> Any:
        start_ns = tape.begin()
        request = request_type(plain(self, buf, dest, tag))
        if dest < 0:
            tape.record(start_ns, tape.LOCAL, operation, -1, -1, -1, 0)
            return request
        size = tape.size_of(buf) if is_buffer else tape.pickled_bytes
        tape.record(start_ns, tape.SEND, operation, self.members[dest], tag, self.number, size)
        return request

    def isend_object(self: Any, *arguments: Any, **options: Any) -> Any:
        if "obj" in options:
            options["buf"] = options.pop("obj")
        return isend(self, *arguments, **options)

    return isend if is_buffer else isend_object


def _recv(plain: Any, name: str, tape: Any, mpi: Any) -> Any:
    operation, any_source, any_tag = tape.number(f"MPI_{name}"), mpi.ANY_SOURCE, mpi.ANY_TAG
    unused = mpi.Status()

    def recv(
        self: Any, buf: Any = None, source: int = any_source, tag: int = any_tag,
        status: Any = None,
    ) -> Any:  # fmt: skip
        status = unused if status is None else status
        start_ns = tape.begin()
        message = plain(self, buf, source, tag, status)
        tape.record_receive(start_ns, operation, self, status)
        return message

    return recv


def _irecv(plain: Any, name: str, tape: Any, mpi: Any, request_type: Any) -> Any:
    operation = tape.number(f"MPI_{name}")

    def irecv(
        self: Any, buf: Any = None, source: int = mpi.ANY_SOURCE, tag: int = mpi.ANY_TAG
    ) -> Any:
        start_ns = tape.begin()
        request = request_type(plain(self, buf, source, tag))
        request.receives_on = self
        tape.record(start_ns, tape.LOCAL, operation, -1, -1, -1, 0)
        return request

    return irecv


def _sendrecv(plain: Any, name: str, tape: Any, mpi: Any) -> Any:
    operation, unused = tape.number(f"MPI_{name}"), mpi.Status()
    is_buffer = plain.__name__[0].isupper()

    def exchanged(self: Any, start_ns: int, dest: int, tag: int, size: int, status: Any) -> None:
        if dest >= 0:
            peer = self.members[dest]
            tape.record(start_ns, tape.SEND, operation, peer, tag, self.number, size)
            start_ns = tape.begin()
        tape.record_receive(start_ns, operation, self, status)

    def sendrecv(
        self: Any, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None,
        source: int = mpi.ANY_SOURCE, recvtag: int = mpi.ANY_TAG, status: Any = None,
    ) -> Any:  # fmt: skip
        status = unused if status is None else status
        start_ns = tape.begin()
        message = plain(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        size = tape.size_of(sendbuf) if is_buffer else tape.pickled_bytes
        exchanged(self, start_ns, dest, sendtag, size, status)
        return message

    def sendrecv_replace(
        self: Any, buf: Any, dest: int, sendtag: int = 0, source: int = mpi.ANY_SOURCE,
        recvtag: int = mpi.ANY_TAG, status: Any = None,
    ) -> None:  # fmt: skip
        status = unused if status is None else status
        start_ns = tape.begin()
        plain(self, buf, dest, sendtag, source, recvtag, status)
        exchanged(self, start_ns, dest, sendtag, tape.size_of(buf), status)

    def sendrecv_object(
        self: Any, sendobj: Any, dest: int, sendtag: int = 0, recvbuf: Any = None,
        source: int = mpi.ANY_SOURCE, recvtag: int = mpi.ANY_TAG, status: Any = None,
    ) -> Any:  # fmt: skip
        return sendrecv(self, sendobj, dest, sendtag, recvbuf, source, recvtag, status)

    if name == "Sendrecv_replace":
        return sendrecv_replace
    return sendrecv if is_buffer else sendrecv_object


def _collective(plain: Any, name: str, tape: Any) -> Any:
    operation, kind = tape.number(f"MPI_{name}"), tape.COLLECTIVE
    begin, record, bytes_of = tape.begin, tape.record, tape.bytes_of

    # The communicator is the first argument: passing all on as they came is the fastest way.
    def of_buffers(*arguments: Any, **options: Any) -> None:
        start_ns = begin()
        plain(*arguments, **options)
        number = arguments[0].number
        record(start_ns, kind, operation, -1, -1, number, bytes_of(arguments, options))

    def of_objects(*arguments: Any, **options: Any) -> Any:
        start_ns = begin()
        result = plain(*arguments, **options)
        record(start_ns, kind, operation, -1, -1, arguments[0].number, tape.pickled_bytes)
        return result

    return of_buffers if plain.__name__[0].isupper() and name != "Barrier" else of_objects


def _icollective(plain: Any, name: str, tape: Any, request_type: Any) -> Any:
    operation, posted = tape.number(f"MPI_{name}"), tape.number(f"MPI_{name}_post")

    def icollective(*arguments: Any, **options: Any) -> Any:
        start_ns = tape.begin()
        request = request_type(plain(*arguments, **options))
        request.collective = (operation, arguments[0].number, tape.bytes_of(arguments, options))
        tape.record(start_ns, tape.LOCAL, posted, -1, -1, -1, 0)
        return request

    return icollective


def _creator(plain: Any, name: str, tape: Any, traced: Any) -> Any:
    operation = tape.number(f"MPI_Comm_{name.lower()}")
    # Create_group is a matter of the members of the group only.
    kind = tape.LOCAL if name == "Create_group" else tape.COLLECTIVE

    def create(self: Any, *arguments: Any, **options: Any) -> Any:
        start_ns = tape.begin()
        communicator = plain(self, *arguments, **options)
        tape.record(start_ns, kind, operation, -1, -1, self.number, 0)
        return traced(communicator)

    return create


def _probe(plain: Any, name: str, tape: Any) -> Any:
    operation = tape.number(f"MPI_{name}")

    def probe(self: Any, *arguments: Any, **options: Any) -> Any:
        start_ns = tape.begin()
        is_there = plain(self, *arguments, **options)
        if is_there:
            tape.record(start_ns, tape.LOCAL, operation, -1, -1, -1, 0)
        else:
            tape.skip(start_ns)
        return is_there

    return probe


def _unfollowed(plain: Any, name: str, tape: Any) -> Any:
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        tape.count_unrecorded(name)
        return plain(self, *arguments, **options)

    return call


def _aborting(plain: Any, tape: Any) -> Any:
    def abort(self: Any, errorcode: int = 0) -> None:
        tape.flush()
        plain(self, errorcode)

    return abort
