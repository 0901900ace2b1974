"""Requests of mpi4py that record their completion; for `mpi_recorder` only.

A nonblocking receive is recorded in the wait or test that completes it, and so is a nonblocking
collective, which orders processes only there. Imports neither mpi4py, which is an argument, nor
anything of voxcast.
"""

from __future__ import annotations

from typing import Any


def request_type(mpi: Any, tape: Any) -> Any:
    """Return a class of requests that record their completion.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.
    tape : Tape
        Of `mpi_recorder`.
    """
    plain = mpi.Request
    numbers = {
        name: tape.number(f"MPI_{name}")
        for name in ("Wait", "Waitall", "Waitany", "Waitsome", "Test", "Testall", "Testany",
                     "Testsome")
    }  # fmt: skip

    def completed(name: str, start_ns: int, requests: Any, statuses: Any) -> None:
        """Record what the completion of requests received or joined, or that a call was made."""
        nothing = True
        for request, status in zip(requests, statuses, strict=False):
            communicator = getattr(request, "receives_on", None)
            collective = getattr(request, "collective", None)
            if communicator is not None:
                request.receives_on = None
                tape.record_receive(start_ns, numbers[name], communicator, status)
            elif collective is not None:
                request.collective = None
                operation, group, size = collective
                tape.record(start_ns, tape.COLLECTIVE, operation, -1, -1, group, size)
            else:
                continue
            nothing = False
            start_ns = tape.begin()
        if nothing:
            tape.record(start_ns, tape.LOCAL, numbers[name], -1, -1, -1, 0)

    def of_request(spelling: str) -> Any:
        function, name = getattr(plain, spelling), spelling.capitalize()

        def complete(self: Any, status: Any = None) -> Any:
            status = mpi.Status() if status is None else status
            start_ns = tape.begin()
            result = function(self, status)
            flag = result[0] if spelling == "test" else result
            if name == "Wait" or flag:
                completed(name, start_ns, (self,), (status,))
            else:
                tape.skip(start_ns)
            return result

        return complete

    def of_all(spelling: str) -> Any:
        function, name = getattr(plain, spelling), spelling.capitalize()

        def complete(requests: Any, statuses: Any = None) -> Any:
            # mpi4py extends a list that is given to as many as it has requests.
            statuses = [] if statuses is None else statuses
            start_ns = tape.begin()
            result = function(requests, statuses)
            flag = result[0] if spelling == "testall" else result
            if name == "Waitall" or flag:
                completed(name, start_ns, requests, statuses)
            else:
                tape.skip(start_ns)
            return result

        return staticmethod(complete)

    def of_any(spelling: str) -> Any:
        function, name = getattr(plain, spelling), spelling.capitalize()

        def complete(requests: Any, status: Any = None) -> Any:
            status = mpi.Status() if status is None else status
            start_ns = tape.begin()
            result = function(requests, status)
            index = result if spelling == "Waitany" else result[0]
            is_there = name == "Waitany" or result[1]
            if is_there and index >= 0:
                completed(name, start_ns, (requests[index],), (status,))
            else:
                tape.skip(start_ns)
            return result

        return staticmethod(complete)

    def of_some(spelling: str) -> Any:
        function, name = getattr(plain, spelling), spelling.capitalize()

        def complete(requests: Any, statuses: Any = None) -> Any:
            statuses = [] if statuses is None else statuses
            start_ns = tape.begin()
            result = function(requests, statuses)
            indices = result[0] if spelling[0].islower() else result
            if indices:
                completed(name, start_ns, [requests[i] for i in indices], statuses)
            else:
                tape.skip(start_ns)
            return result

        return staticmethod(complete)

    methods: dict[str, Any] = {"receives_on": None, "collective": None}
    makers = {of_request: "", of_all: "all", of_any: "any", of_some: "some"}
    for maker, ending in makers.items():
        for stem in ("Wait", "wait", "Test", "test"):
            methods[stem + ending] = maker(stem + ending)
    return type("TracedRequest", (plain,), methods)
