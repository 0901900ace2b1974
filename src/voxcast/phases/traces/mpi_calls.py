"""Calls of mpi4py that are recorded, one function for each kind; for `mpi_recorder` only.

Each takes the call of mpi4py, ``plain``, its name in MPI and the ``tape``, and returns the method
of a traced communicator. Imports neither mpi4py, which is an argument, nor anything of voxcast.
"""

from __future__ import annotations

from typing import Any


def send_call(plain: Any, name: str, tape: Any) -> Any:
    """Return a blocking send that is recorded, of buffers or of objects."""
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


def isend_call(plain: Any, name: str, tape: Any, request_type: Any) -> Any:
    """Return a nonblocking send, which is recorded where it is posted."""
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


def recv_call(plain: Any, name: str, tape: Any, mpi: Any) -> Any:
    """Return a blocking receive; its status tells from whom it was, and how much."""
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


def irecv_call(plain: Any, name: str, tape: Any, mpi: Any, request_type: Any) -> Any:
    """Return a nonblocking receive, which its request records when it completes."""
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


def sendrecv_call(plain: Any, name: str, tape: Any, mpi: Any) -> Any:
    """Return an exchange, which is recorded as a send and a receive."""
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


def collective_call(plain: Any, name: str, tape: Any) -> Any:
    """Return a blocking collective."""
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


def icollective_call(plain: Any, name: str, tape: Any, request_type: Any) -> Any:
    """Return a nonblocking collective, which its request records when it completes."""
    operation, posted = tape.number(f"MPI_{name}"), tape.number(f"MPI_{name}_post")

    def icollective(*arguments: Any, **options: Any) -> Any:
        start_ns = tape.begin()
        request = request_type(plain(*arguments, **options))
        request.collective = (operation, arguments[0].number, tape.bytes_of(arguments, options))
        tape.record(start_ns, tape.LOCAL, posted, -1, -1, -1, 0)
        return request

    return icollective


def creator_call(plain: Any, name: str, tape: Any, traced: Any) -> Any:
    """Return a call that makes a communicator, of which the calls are recorded as well."""
    operation = tape.number(f"MPI_Comm_{name.lower()}")
    # Create_group is a matter of the members of the group only.
    kind = tape.LOCAL if name == "Create_group" else tape.COLLECTIVE

    def create(self: Any, *arguments: Any, **options: Any) -> Any:
        start_ns = tape.begin()
        communicator = plain(self, *arguments, **options)
        tape.record(start_ns, kind, operation, -1, -1, self.number, 0)
        return traced(communicator)

    return create


def probe_call(plain: Any, name: str, tape: Any) -> Any:
    """Return a probe, which is recorded if it sees a message."""
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


def unfollowed_call(plain: Any, name: str, tape: Any) -> Any:
    """Return a call that is only counted."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        tape.count_unrecorded(name)
        return plain(self, *arguments, **options)

    return call


def abort_call(plain: Any, tape: Any) -> Any:
    """Return an abort that leaves what was recorded."""

    def abort(self: Any, errorcode: int = 0) -> None:
        tape.flush()
        plain(self, errorcode)

    return abort
