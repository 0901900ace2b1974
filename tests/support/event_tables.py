"""Tables of events: from tuples, and of parallel programs with planted phases."""

from dataclasses import dataclass

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


PLANTED_OPERATIONS = ("MPI_Send", "MPI_Recv", "MPI_Allreduce", "MPI_Bcast")
_KINDS = np.array([Kind.SEND, Kind.RECEIVE, Kind.COLLECTIVE, Kind.COLLECTIVE])
JITTER = 0.1
IMBALANCE = 0.5
EVENT_NS = 1000
BEFORE_RECEIVE = 1e-3  # computation between send and receive, of that before the send
MAX_REPEATS = 20


@dataclass(frozen=True)
class PlantedPhase:
    """A step that all processes take: computation, then operations on so many bytes."""

    instructions: float
    operations: tuple[int, ...]
    size_bytes: int


# Two lie at a power of ten, where the order of magnitude of jittered counts flips.
PHASES = (
    PlantedPhase(1e6, (2,), 4096),
    PlantedPhase(3e7, (2,), 4096),
    PlantedPhase(3e4, (2,), 4096),
    PlantedPhase(1e5, (0, 1), 2**20),
    PlantedPhase(4e6, (0, 1), 2**20),
    PlantedPhase(4e4, (3,), 64),
)


def planted(
    n_processes: int,
    n_steps: int,
    seed: int,
    phases: tuple[PlantedPhase, ...] = PHASES,
    jitter: float = JITTER,
) -> tuple[EventTable, np.ndarray]:
    """Return a run and the part of a phase that each event belongs to, shape (events,).

    Steps of one phase follow each other up to 20 times. The computation of a process is that of
    the phase, times its imbalance (log-normal with sigma 0.5, drawn for each phase and process),
    times a jitter, drawn for each event. Clocks differ by up to a second, and by up to 1e-4 of
    their rate. Messages go to the next process of a ring.

    Parameters
    ----------
    n_processes : int
        Number of processes, 2 or more.
    n_steps : int
        Number of steps; each has one or two events a process.
    seed : int
        Seed of all that is random.
    phases : tuple of PlantedPhase
        The phases.
    jitter : float
        Sigma of the log-normal jitter; 0.1 is 10 %.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(phases), n_steps)
    steps = np.repeat(drawn, rng.integers(1, MAX_REPEATS + 1, n_steps))[:n_steps]
    parts = [(number, operation) for number, step in enumerate(phases)
             for operation in step.operations]  # fmt: skip
    of_step = [[n for n, part in enumerate(parts) if part[0] == p] for p in range(len(phases))]
    lengths = np.array([len(numbers) for numbers in of_step])
    first = np.array([numbers[0] for numbers in of_step])
    # The parts of a phase are numbered one after another.
    starts = np.cumsum(lengths[steps]) - lengths[steps]
    part = np.repeat(first[steps] - starts, lengths[steps]) + np.arange(lengths[steps].sum())
    phase_of, operation_of = np.array(parts).T
    base = np.array([step.instructions for step in phases])[phase_of]
    base = np.where(_KINDS[operation_of] == Kind.RECEIVE, BEFORE_RECEIVE * base, base)
    uneven = base[:, None] * rng.lognormal(0, IMBALANCE, (len(parts), n_processes))
    computation = np.rint(uneven[part].T * rng.lognormal(0, jitter, (n_processes, len(part))))
    rate = 1 + rng.uniform(-1e-4, 1e-4, (n_processes, 1))
    skew_ns = rng.uniform(-1e9, 1e9, (n_processes, 1))
    end_ns = (skew_ns + rate * np.cumsum(computation + EVENT_NS, axis=1)).astype(np.int64)
    processes = np.arange(n_processes)
    kind = _KINDS[operation_of[part]]
    to_next = np.where(kind == Kind.SEND, 1, -1)
    peer = (processes[:, None] + to_next) % n_processes
    size = np.array([step.size_bytes for step in phases])[phase_of[part]]
    wide = {
        "process": np.repeat(processes, len(part)),
        "start_ns": end_ns - EVENT_NS,
        "end_ns": end_ns,
        "kind": np.tile(kind, n_processes),
        "operation": np.tile(operation_of[part], n_processes),
        "peer": np.where(kind == Kind.COLLECTIVE, -1, peer),
        "tag": np.zeros(end_ns.size),
        "group": np.zeros(end_ns.size),
        "size_bytes": np.tile(size, n_processes),
        "computation": computation,
    }
    columns = {name: wide[name].ravel().astype(dtype) for name, dtype in EVENT_DTYPES.items()}
    events = EventTable(
        columns,
        tuple(f"rank {n}" for n in processes),
        PLANTED_OPERATIONS,
        (tuple(processes.tolist()),),
        "instructions",
        skew_ns.ravel().astype(np.int64),
        end_ns[:, -1],
        "planted",
    )
    return events, np.tile(part, n_processes)
