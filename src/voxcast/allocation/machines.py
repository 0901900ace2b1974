"""The machines of a site: partitions with their limits, and the configurations that fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from voxcast.allocation.billing import Billing
from voxcast.allocation.mapped_files import OTHER_BYTES, mapped_files_bytes
from voxcast.allocation.node_types import NodeType
from voxcast.allocation.waiting import Waiting
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from voxcast.records import Configuration

MemoryCounted: TypeAlias = Literal["cgroup", "rss"]
THIS_MACHINE = "local"  # name of the cluster that is this machine

# A job script's shell, Slurm's own step and page tables need memory beside the program's.
MEMORY_FLOOR_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Partition:
    """Limits of a job, None for no limit, and its expected waiting time."""

    name: str
    max_walltime_s: float | None = None
    max_cores: int | None = None
    max_memory_bytes: int | None = None
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(frozen=True)
class Candidate:
    """A configuration on a node type: a request without its time and memory."""

    configuration: Configuration
    node: NodeType
    partition: Partition

    @property
    def cpus(self) -> int:
        """Requested CPUs."""
        return self.configuration.cpus

    @property
    def gpus(self) -> int:
        """Requested GPUs."""
        return self.configuration.gpus

    @property
    def label(self) -> str:
        """A short label for display."""
        return f"{self.configuration.label} on {self.node.name}"

    @property
    def max_memory_bytes(self) -> float:
        """The most memory that can be requested."""
        limit = self.partition.max_memory_bytes
        return self.node.memory_bytes if limit is None else min(limit, self.node.memory_bytes)

    @property
    def max_walltime_s(self) -> float:
        """The longest time that can be requested."""
        limit = self.partition.max_walltime_s
        return float("inf") if limit is None else limit


@dataclass(frozen=True)
class Cluster:
    """A site as configured.

    Attributes
    ----------
    walltime_step_s, memory_step_bytes : float
        Requests are rounded up to multiples of these.
    memory_floor_bytes : float
        The least memory that is requested.
    memory_counted : {"cgroup", "rss"} or None
        How the memory of a job is counted that is held against its request: by the kernel, or by
        Slurm as the sum of resident pages. None: not known, and taken to be by the kernel.
    mapped_files_bytes : int or None
        What the sum counts in addition; None: of an application that was not measured.
    """

    name: str
    node_types: tuple[NodeType, ...]
    partitions: tuple[Partition, ...]
    billing: Billing = field(default_factory=Billing)
    walltime_step_s: float = 60.0
    memory_step_bytes: int = 2**20
    memory_floor_bytes: int = MEMORY_FLOOR_BYTES
    memory_counted: MemoryCounted | None = None
    mapped_files_bytes: int | None = None

    @property
    def is_this_machine(self) -> bool:
        """Whether it is the machine that this process runs on, without a scheduler."""
        return self.name == THIS_MACHINE

    @property
    def added_bytes(self) -> int:
        """What is requested beside the memory of a run and its margin."""
        if self.memory_counted != "rss":
            return 0
        stated = self.mapped_files_bytes
        return OTHER_BYTES if stated is None else stated

    def added_bytes_of(self, app: str) -> int:
        """Return what is requested beside the memory of a run of an application."""
        if self.memory_counted != "rss" or self.mapped_files_bytes is not None:
            return self.added_bytes
        return mapped_files_bytes(app)

    @property
    def free(self) -> bool:
        """Whether the site charges nothing, so that cost is given in core-hours."""
        return not any(node.prices.hourly(1, node.gpus, 1.0) for node in self.node_types)

    @property
    def queues(self) -> bool:
        """Whether waiting times were fitted."""
        return any(partition.waiting != Waiting() for partition in self.partitions)

    @property
    def usd_per_core_hour(self) -> float:
        """The price of the cheapest core-hour, with its share of memory; 1 if free.

        It converts values of time. Where only GPUs are charged, their share is included.
        """
        for gpus in (0, 1):
            shares = [
                node.prices.hourly(node.cores, gpus * node.gpus, node.memory_bytes) / node.cores
                for node in self.node_types
            ]
            if priced := [share for share in shares if share > 0]:
                return float(min(priced))
        return 1.0

    def candidates(
        self, configurations: Iterable[Configuration], partition: str | None = None
    ) -> list[Candidate]:
        """Return each configuration on every node type with enough cores and GPUs.

        Configurations without GPUs are included on nodes with GPUs; `assess` excludes these where
        a node without GPUs is large enough.

        Raises
        ------
        ConfigError
            If the partition is unknown, or no configuration fits.
        """
        partitions = {p.name: p for p in self.partitions}
        if partition is not None and partition not in partitions:
            names = ", ".join(sorted(partitions))
            raise ConfigError("unknown partition", partition, f"{self.name} has {names}")
        fitting, refused = [], []
        for node in self.node_types:
            if partition in (None, node.partition):
                for configuration in configurations:
                    candidate = Candidate(configuration, node, partitions[node.partition])
                    shortfall = _shortfall(candidate)
                    if shortfall is None:
                        fitting.append(candidate)
                    else:
                        refused.append(f"{candidate.label} {shortfall}")
        if not fitting:
            where = self.name if partition is None else f"{self.name}, partition {partition}"
            reasons = "; ".join(dict.fromkeys(refused)) or "it has no node types"
            raise ConfigError("no configuration fits", where, reasons[:400])
        return fitting


def _shortfall(candidate: Candidate) -> str | None:
    node, limit = candidate.node, candidate.partition.max_cores
    if candidate.cpus > node.cores:
        return f"needs more than the node's {node.cores} cores"
    if candidate.gpus > node.gpus:
        return f"needs more than the node's {node.gpus} GPUs"
    if limit is not None and candidate.cpus > limit:
        return f"needs more than the partition's {limit} cores"
    return None
