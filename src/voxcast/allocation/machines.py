"""The machines of a site: node types with their prices, partitions with their limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from voxcast.allocation.billing import Billing
from voxcast.allocation.pricing import Prices
from voxcast.allocation.waiting import Waiting
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from voxcast.records import Configuration

Charged = Literal["used", "requested"]


@dataclass(frozen=True)
class NodeType:
    """Nodes of one kind.

    Attributes
    ----------
    memory_bytes : int
        What jobs can have of a node.
    partition : str
        Through which they are reached.
    charged : {"used", "requested"}
        Whether the time that a job takes is paid for, or all that it asked for (as of an
        instance reserved in a cloud).
    host_class : str or None
        The machine as the history names it, where runs were measured on such; None for the one
        that the model takes as usual.
    """

    name: str
    cores: int
    memory_bytes: int
    gpus: int = 0
    prices: Prices = field(default_factory=Prices)
    partition: str = ""
    charged: Charged = "used"
    host_class: str | None = None


@dataclass(frozen=True)
class Partition:
    """RunLimits of one job, None for no limit, and how long it waits."""

    name: str
    max_walltime_s: float | None = None
    max_cores: int | None = None
    max_memory_bytes: int | None = None
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(frozen=True)
class Candidate:
    """A configuration on a node type: what can be asked for but for time and memory."""

    configuration: Configuration
    node: NodeType
    partition: Partition

    @property
    def cpus(self) -> int:
        """CPUs asked for."""
        return self.configuration.cpus

    @property
    def gpus(self) -> int:
        """GPUs asked for."""
        return self.configuration.gpus

    @property
    def label(self) -> str:
        """A short name for people."""
        return f"{self.configuration.label} on {self.node.name}"

    @property
    def max_memory_bytes(self) -> float:
        """The most memory that can be asked for."""
        limit = self.partition.max_memory_bytes
        return self.node.memory_bytes if limit is None else min(limit, self.node.memory_bytes)

    @property
    def max_walltime_s(self) -> float:
        """The longest time that can be asked for."""
        limit = self.partition.max_walltime_s
        return float("inf") if limit is None else limit


@dataclass(frozen=True)
class Cluster:
    """A site as it is today.

    Attributes
    ----------
    walltime_step_s, memory_step_bytes : float
        What requests are rounded up to.
    """

    name: str
    node_types: tuple[NodeType, ...]
    partitions: tuple[Partition, ...]
    billing: Billing = field(default_factory=Billing)
    walltime_step_s: float = 60.0
    memory_step_bytes: int = 10**6

    @property
    def free(self) -> bool:
        """Whether nothing is charged here, so that cost is counted in core-hours."""
        return not any(own.prices.hourly(1, own.gpus, 1.0) for own in self.node_types)

    @property
    def queues(self) -> bool:
        """Whether anything is known of waiting times."""
        return any(own.waiting != Waiting() for own in self.partitions)

    @property
    def usd_per_core_hour(self) -> float:
        """The cheapest core-hour, with its share of memory; 1 if free.

        This is what values of time are given in. Where only GPUs cost, they are shared too.
        """
        for gpus in (0, 1):
            shares = [
                own.prices.hourly(own.cores, gpus * own.gpus, own.memory_bytes) / own.cores
                for own in self.node_types
            ]
            if priced := [share for share in shares if share > 0]:
                return float(min(priced))
        return 1.0

    def candidates(
        self, configurations: Iterable[Configuration], partition: str | None = None
    ) -> list[Candidate]:
        """Return the configurations on all node types that have the cores and GPUs for them.

        What asks for no GPU is among them on nodes with GPUs too; `assess` leaves those to others
        where a node without them is large enough.

        Raises
        ------
        ConfigError
            If the partition is unknown, or none fits; it says why.
        """
        known = {own.name: own for own in self.partitions}
        if partition is not None and partition not in known:
            names = ", ".join(sorted(known))
            raise ConfigError("unknown partition", partition, f"{self.name} has {names}")
        found, refused = [], []
        for node in self.node_types:
            if partition in (None, node.partition):
                for own in configurations:
                    candidate = Candidate(own, node, known[node.partition])
                    lacks = _lacks(candidate)
                    if lacks is None:
                        found.append(candidate)
                    else:
                        refused.append(f"{candidate.label} {lacks}")
        if not found:
            where = self.name if partition is None else f"{self.name}, partition {partition}"
            said = "; ".join(dict.fromkeys(refused)) or "it has no node types"
            raise ConfigError("no configuration fits", where, said[:400])
        return found


def _lacks(candidate: Candidate) -> str | None:
    node, limit = candidate.node, candidate.partition.max_cores
    if candidate.cpus > node.cores:
        return f"needs more than the node's {node.cores} cores"
    if candidate.gpus > node.gpus:
        return f"needs more than the node's {node.gpus} GPUs"
    if limit is not None and candidate.cpus > limit:
        return f"needs more than the partition's {limit} cores"
    return None
