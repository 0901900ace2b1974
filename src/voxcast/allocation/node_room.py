"""Nodes with cores and memory, and where jobs are placed on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

Places: TypeAlias = "tuple[tuple[int, int], ...]"  # nodes, and processors on each


@dataclass(frozen=True)
class Machine:
    """Nodes that are all alike.

    Attributes
    ----------
    cores : int
        Of a node.
    memory_bytes : float
        Of a node; infinite where memory is no matter.
    """

    nodes: int
    cores: int
    memory_bytes: float = math.inf

    def __post_init__(self) -> None:
        for name in ("nodes", "cores"):
            if getattr(self, name) < 1:
                raise TableError(f"must be at least 1, not {getattr(self, name)}", name)
        if not self.memory_bytes > 0:
            raise TableError(f"must be positive, not {self.memory_bytes}", "memory_bytes")

    @property
    def processors(self) -> int:
        """Of all nodes."""
        return self.nodes * self.cores

    def memory_limit(self, processors: int) -> float:
        """Return the most memory that each processor of a job can have, in bytes."""
        if processors <= self.cores:
            return self.memory_bytes / processors
        return self.memory_bytes / math.ceil(processors / self.nodes)


class NodeRoom:
    """What is free on each node.

    A job that is no wider than a node runs on one, that with the fewest free cores on which it
    fits, so that wide jobs find room; a wider one is spread over the nodes with most room.
    """

    def __init__(self, cores: Sequence[int], memory: Sequence[float], node_cores: int) -> None:
        self.cores, self.memory, self.node_cores = list(cores), list(memory), node_cores
        self.free = sum(self.cores)

    @classmethod
    def of(cls, machine: Machine) -> NodeRoom:
        """Return the room of an empty machine."""
        nodes = machine.nodes
        return cls([machine.cores] * nodes, [machine.memory_bytes] * nodes, machine.cores)

    def copy(self) -> NodeRoom:
        """Return the same room, to try something on."""
        return NodeRoom(self.cores, self.memory, self.node_cores)

    def common(self, other: NodeRoom) -> NodeRoom:
        """Return the room that is free in both."""
        return NodeRoom(
            list(map(min, self.cores, other.cores)), list(map(min, self.memory, other.memory)),
            self.node_cores,
        )  # fmt: skip

    def places(self, processors: int, memory: float) -> Places | None:
        """Return where a job fits, or None.

        Parameters
        ----------
        memory : float
            Bytes for each processor.
        """
        if processors > self.free:
            return None
        if processors > self.node_cores:
            return self._spread(processors, memory)
        best, least, needed = -1, self.node_cores + 1, processors * memory
        for node, cores in enumerate(self.cores):
            if processors <= cores < least and self.memory[node] >= needed:
                best, least = node, cores
        return None if best < 0 else ((best, processors),)

    def _spread(self, processors: int, memory: float) -> Places | None:
        room = [
            cores if memory == 0 else min(cores, int(free // memory))
            for cores, free in zip(self.cores, self.memory, strict=True)
        ]
        chosen = []
        for node in sorted(range(len(room)), key=lambda n: -room[n]):
            count = min(room[node], processors)
            if count <= 0:
                return None
            chosen.append((node, count))
            processors -= count
            if processors == 0:
                return tuple(chosen)
        return None

    def take(self, places: Places, memory: float) -> None:
        """Give places to a job."""
        for node, count in places:
            self.cores[node] -= count
            self.memory[node] -= count * memory
            self.free -= count

    def give_back(self, places: Places, memory: float) -> None:
        """Free the places of a job."""
        for node, count in places:
            self.cores[node] += count
            self.memory[node] += count * memory
            self.free += count
