"""Tables of events from tuples, for tests."""

import numpy as np

from voxcast.phases.events import EVENT_DTYPES, EventTable, Kind

OPERATIONS = ("MPI_Send", "MPI_Recv", "MPI_Allreduce", "write")
SEND, RECEIVE, COLLECTIVE, LOCAL = Kind
DEFAULTS = {
    "kind": LOCAL, "peer": -1, "tag": 0, "group": 0, "size_bytes": 8, "computation": 1000.0,
    "duration_ns": 100,
}  # fmt: skip


def event_table(processes, groups=None, skews_ns=None):
    """A table from events by process, each a mapping of columns; clocks differ by the skews.

    An event starts when its computation ends, and takes 100 ns unless `duration_ns` tells.
    """
    skews_ns = skews_ns or [0] * len(processes)
    columns = {name: [] for name in EVENT_DTYPES}
    ends = []
    for process, (events, skew_ns) in enumerate(zip(processes, skews_ns, strict=True)):
        clock = skew_ns
        for event in events:
            row = DEFAULTS | {"process": process} | event
            row.setdefault("operation", int(row["kind"]))
            row["start_ns"] = clock + int(row["computation"])
            clock = row["end_ns"] = row["start_ns"] + row["duration_ns"]
            for name, column in columns.items():
                column.append(row[name])
        ends.append(clock)
    return EventTable(
        {name: np.array(column, EVENT_DTYPES[name]) for name, column in columns.items()},
        tuple(f"rank {n}" for n in range(len(processes))),
        OPERATIONS,
        groups or (tuple(range(len(processes))),),
        "instructions",
        np.array(skews_ns, np.int64),
        np.array(ends, np.int64),
    )


def send(peer, tag=0, **more):
    return {"kind": SEND, "peer": peer, "tag": tag, **more}


def receive(peer, tag=0, **more):
    return {"kind": RECEIVE, "peer": peer, "tag": tag, **more}


def collective(group=0, **more):
    return {"kind": COLLECTIVE, "group": group, **more}


def local(**more):
    return {"kind": LOCAL, **more}
