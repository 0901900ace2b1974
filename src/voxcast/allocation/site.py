"""A site: node types, partitions, prices, billing, waiting times, and how memory is counted.

`Cluster.counted_bytes` is the one conversion from the memory that a model predicts to the memory
that the site holds against a request. Predictions, requests and accounting are compared in the
latter.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from voxcast.errors import ConfigError
from voxcast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from voxcast.records import Configuration

MemoryCounted: TypeAlias = Literal["cgroup", "rss"]
Charged = Literal["used", "requested"]

SECONDS_PER_HOUR = 3600.0
BYTES_PER_GB = 1e9
THIS_MACHINE = "local"  # name of the cluster that is this machine
# A job script's shell, Slurm's own step and page tables need memory beside the program's.
MEMORY_FLOOR_BYTES = 32 * 2**20
_ROUNDING = 1e-9  # tolerance in steps, since 0.1 + 0.2 > 0.3

# The largest differences in results/memory/mapped_files.json, by benchmarks/mapped_files.py,
# rounded up to steps: libraries differ a little by version and machine.
STEP_BYTES = 32 * 2**20
MEASURED_BYTES = {
    "ants_register": 160 * 2**20,
    "ants_segment": 160 * 2**20,
    "dnn_train": 160 * 2**20,
    "tile_segment": 224 * 2**20,
}
OTHER_BYTES = max(MEASURED_BYTES.values())  # of an application that was not measured


@dataclass(frozen=True)
class Prices:
    """Prices of an hour in US dollars; the defaults are from HARP's publication.

    References
    ----------
    Vallabhajosyula and Ramnath, "Establishing a generalizable framework for generating
    cost-aware training data and building unique context-aware walltime prediction regression
    models", PEARC 2023, doi 10.1145/3569951.3597607.
    """

    usd_per_core_hour: float = 0.003
    usd_per_gpu_hour: float = 0.09
    usd_per_gb_hour: float = 0.0  # of memory, GB = 10**9 bytes

    def of(self, runtime_s: float, cpus: int, gpus: int, memory_bytes: float = 0.0) -> float:
        """Return the cost in US dollars of CPUs and GPUs for some seconds.

        Examples
        --------
        >>> round(Prices().of(36_000, cpus=28, gpus=1), 2)
        1.74
        """
        return float(runtime_s / SECONDS_PER_HOUR * self.hourly(cpus, gpus, memory_bytes))

    def hourly(self, cpus: Any, gpus: Any, memory_bytes: Any = 0.0) -> Any:
        """Return the price of an hour of an allocation, for numbers or arrays."""
        return (
            cpus * self.usd_per_core_hour
            + gpus * self.usd_per_gpu_hour
            + memory_bytes / BYTES_PER_GB * self.usd_per_gb_hour
        )


@dataclass(frozen=True)
class NodeType:
    """Nodes of one kind.

    Attributes
    ----------
    memory_bytes : int
        Memory of a node that is available to jobs.
    partition : str
        Partition to which the nodes belong.
    charged : {"used", "requested"}
        Whether the used or the requested time is charged (the latter for a reserved cloud
        instance).
    host_class : str or None
        Host class in the history, where runs were measured on such nodes. If None, the speed of
        the nodes follows from the runs of this node type, see `voxcast.models.speed`.
    """

    name: str
    cores: int
    memory_bytes: int
    gpus: int = 0
    prices: Prices = field(default_factory=Prices)
    partition: str = ""
    charged: Charged = "used"
    host_class: str | None = None


def stepped(amount: ArrayLike, step: float) -> NDArray[np.float64]:
    """Round up to whole steps; a step of 0 leaves the amount as it is.

    Examples
    --------
    >>> stepped([61, 120], 60.0).tolist()
    [120.0, 120.0]
    """
    exact = np.asarray(amount, dtype=np.float64)
    return exact if step <= 0 else np.ceil(exact / step - _ROUNDING) * step


@dataclass(frozen=True)
class Billing:
    """The billing rule of a site.

    Attributes
    ----------
    memory_follows_cores : bool
        Each core includes its share of the node's memory; a request for more memory is billed
        for the cores that include it.
    whole_node : bool
        A job is billed for the whole node.
    core_step : int
        Cores are billed in multiples of this.
    time_step_s, minimum_s : float
        Step to which time is rounded up (0 for none), and the minimum that is billed.
    """

    memory_follows_cores: bool = False
    whole_node: bool = False
    core_step: int = 1
    time_step_s: float = 0.0
    minimum_s: float = 0.0

    def billed_s(self, seconds: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds that are billed for an attempt of this length."""
        return np.maximum(stepped(seconds, self.time_step_s), self.minimum_s)

    def billed_cores(
        self, node: NodeType, cpus: int, memory_bytes: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the cores that are billed for a number of CPUs and an amount of memory.

        Examples
        --------
        At OSC a core of Pitzer includes 4556 MB, so that 14283 MB are billed as four cores.

        >>> pitzer = NodeType("pitzer", cores=40, memory_bytes=40 * 4556 * 10**6)
        >>> Billing(memory_follows_cores=True).billed_cores(pitzer, 1, 14283e6).item()
        4.0
        """
        memory = np.asarray(memory_bytes, dtype=np.float64)
        cores = np.full(memory.shape, float(node.cores if self.whole_node else cpus))
        if self.memory_follows_cores:
            cores = np.maximum(cores, stepped(memory * node.cores / node.memory_bytes, 1.0))
        return np.minimum(stepped(cores, self.core_step), node.cores)

    def usd(
        self, node: NodeType, cpus: int, gpus: int, memory_bytes: ArrayLike, seconds: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the cost of one attempt in US dollars; memory and seconds may be arrays."""
        memory = np.asarray(memory_bytes, dtype=np.float64)
        cores = self.billed_cores(node, cpus, memory)
        if self.whole_node:
            gpus, memory = node.gpus, np.full(memory.shape, float(node.memory_bytes))
        hours = self.billed_s(seconds) / SECONDS_PER_HOUR
        return np.asarray(hours * node.prices.hourly(cores, gpus, memory), dtype=np.float64)


@dataclass(frozen=True)
class Waiting:
    """Waiting time ``alpha`` × requested time + ``gamma_s``, never below 0; seconds."""

    alpha: float = 0.0
    gamma_s: float = 0.0

    def of(self, requested_s: ArrayLike) -> NDArray[np.float64]:
        """Return the expected waiting time of a request.

        Examples
        --------
        On Intrepid, 409 processors for an hour (the paper's figures):

        >>> round(Waiting(0.95, 3771.84).of(3600.0).item() / 3600, 2)
        2.0
        """
        return np.maximum(self.alpha * np.asarray(requested_s, dtype=float) + self.gamma_s, 0.0)


@dataclass(frozen=True)
class Partition:
    """Limits of a job, None for no limit, and its expected waiting time.

    Attributes
    ----------
    memory_per_cpu : bool
        Memory is requested for each CPU, by ``--mem-per-cpu``; some sites refuse ``--mem``.
    """

    name: str
    max_walltime_s: float | None = None
    max_cores: int | None = None
    max_memory_bytes: int | None = None
    waiting: Waiting = field(default_factory=Waiting)
    memory_per_cpu: bool = field(default=False, metadata={"optional": True})


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
    memory_stated : {"cgroup", "rss"} or None
        How accounting states it; None: as it is counted.
    mapped_files_bytes : int or None
        Pages that the sum counts in addition; None: of an application that was not measured.
    """

    name: str
    node_types: tuple[NodeType, ...]
    partitions: tuple[Partition, ...]
    billing: Billing = field(default_factory=Billing)
    walltime_step_s: float = 60.0
    memory_step_bytes: int = 2**20
    memory_floor_bytes: int = MEMORY_FLOOR_BYTES
    memory_counted: MemoryCounted | None = None
    memory_stated: MemoryCounted | None = None
    mapped_files_bytes: int | None = None

    @property
    def is_this_machine(self) -> bool:
        """Whether it is the machine that this process runs on, without a scheduler."""
        return self.name == THIS_MACHINE

    def added_bytes_of(self, app: str) -> int:
        """Return the memory that the site counts beside the memory of a run of an application.

        The memory of a run is what its processes hold, without the pages of files that they map,
        shared libraries above all. Slurm counts these where it adds up resident pages.
        """
        if self.memory_counted != "rss":
            return 0
        stated = self.mapped_files_bytes
        return MEASURED_BYTES.get(app, OTHER_BYTES) if stated is None else stated

    def stated_bytes_of(self, app: str) -> int:
        """Return the memory that accounting states beside the memory of such a run."""
        stated = self.memory_stated or self.memory_counted
        return replace(self, memory_counted=stated).added_bytes_of(app)

    def for_app(self, app: str) -> Cluster:
        """Return the cluster as it counts the memory of an application."""
        return replace(self, mapped_files_bytes=self.added_bytes_of(app))

    def counted_bytes(self, resident_bytes: ArrayLike, app: str = "") -> NDArray[np.float64]:
        """Return the memory that the site counts for runs that hold ``resident_bytes``.

        Examples
        --------
        >>> Cluster("lab", (), (), memory_counted="rss").counted_bytes(1e9, "ants_segment").item()
        1167772160.0
        """
        return np.asarray(resident_bytes, dtype=np.float64) + self.added_bytes_of(app)

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
        nodes = [node for node in self.node_types if partition in (None, node.partition)]
        for node, configuration in itertools.product(nodes, configurations):
            candidate = Candidate(configuration, node, partitions[node.partition])
            cores = min(node.cores, candidate.partition.max_cores or node.cores)
            if candidate.cpus <= cores and candidate.gpus <= node.gpus:
                fitting.append(candidate)
            else:
                allowed = f"{counted(cores, 'core')} and {counted(node.gpus, 'GPU')}"
                refused.append(f"{candidate.label} needs more than {allowed}")
        if not fitting:
            where = self.name if partition is None else f"{self.name}, partition {partition}"
            reasons = "; ".join(dict.fromkeys(refused)) or "it has no node types"
            raise ConfigError("no configuration fits", where, reasons[:400])
        return fitting
