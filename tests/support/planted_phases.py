"""Events of parallel programs with planted phases: jitter, imbalance, clocks that differ."""

from dataclasses import dataclass

import numpy as np

from voxcast.phases.events import EVENT_DTYPES, EventTable, Kind

OPERATIONS = ("MPI_Send", "MPI_Recv", "MPI_Allreduce", "MPI_Bcast")
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
        OPERATIONS,
        (tuple(processes.tolist()),),
        "instructions",
        skew_ns.ravel().astype(np.int64),
        end_ns[:, -1],
        "planted",
    )
    return events, np.tile(part, n_processes)
