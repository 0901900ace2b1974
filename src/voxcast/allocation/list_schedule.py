"""Jobs of given cores placed on nodes one after the other, as a scheduler does it.

List scheduling (Graham, SIAM J. Appl. Math. 17:416, 1969): whenever cores become free, the first
job of the list that fits into a node starts there. No core of a node is shared; a job runs on one
node. This is what Slurm does with jobs of equal priority, where backfilling finds the gaps.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Machine:
    """Nodes of equal size.

    Attributes
    ----------
    job_start_s : float
        Seconds for which a job holds its cores before its first task begins.
    """

    nodes: int
    cores_per_node: int
    job_start_s: float = 0.0

    @property
    def cores(self) -> int:
        """Of all nodes."""
        return self.nodes * self.cores_per_node


@dataclass(frozen=True)
class ListSchedule:
    """When each job starts, in seconds from the first, and how long all take."""

    start_s: NDArray[np.float64]
    makespan_s: float


def list_schedule(
    runtime_s: Sequence[float] | NDArray[np.float64],
    cores: Sequence[int] | NDArray[np.intp],
    order: Sequence[int] | NDArray[np.intp],
    machine: Machine,
) -> ListSchedule:
    """Place jobs on nodes.

    Parameters
    ----------
    runtime_s, cores : sequence, shape (jobs,)
        Of each job; none needs more cores than a node has.
    order : sequence of int, shape (jobs,)
        The list: indices of jobs.
    """
    times = np.asarray(runtime_s, float) + machine.job_start_s
    widths = np.asarray(cores, np.intp).tolist()
    seconds = times.tolist()
    queues: dict[int, deque[tuple[int, int]]] = {}
    for rank, job in enumerate(np.asarray(order, np.intp).tolist()):
        queues.setdefault(widths[job], deque()).append((rank, job))
    start_s = np.zeros(len(seconds))
    # Nodes by their number of free cores; a job goes where it leaves the fewest.
    free: list[set[int]] = [set() for _ in range(machine.cores_per_node)]
    free.append(set(range(machine.nodes)))
    free_of_node = [machine.cores_per_node] * machine.nodes
    running: list[tuple[float, int, int]] = []
    now = 0.0
    while queues:
        placed = True
        while placed and queues:
            placed = False
            most = max((count for count, nodes in enumerate(free) if nodes), default=0)
            fitting = [width for width in queues if width <= most]
            if fitting:
                width = min(fitting, key=lambda w: queues[w][0])
                _, job = queues[width].popleft()
                if not queues[width]:
                    del queues[width]
                count = next(n for n in range(width, machine.cores_per_node + 1) if free[n])
                node = free[count].pop()
                free[count - width].add(node)
                free_of_node[node] = count - width
                start_s[job] = now
                heapq.heappush(running, (now + seconds[job], node, width))
                placed = True
        if not queues:
            break
        now = running[0][0]
        while running and running[0][0] <= now:
            _, node, width = heapq.heappop(running)
            free[free_of_node[node]].discard(node)
            free_of_node[node] += width
            free[free_of_node[node]].add(node)
    ends = start_s + times
    return ListSchedule(start_s, float(ends.max()) if len(ends) else 0.0)
