"""What ``conf/submit.yaml`` holds, as frozen dataclasses: the cluster of today and the policy.

Names and meanings are those of `voxcast.allocation`; amounts with a unit are texts here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BillingConfig:
    """As `voxcast.allocation.billing.Billing`, times as texts."""

    memory_follows_cores: bool
    whole_node: bool
    core_step: int
    time_step: str
    minimum: str


@dataclass(frozen=True)
class RequestConfig:
    """What requests are rounded up to."""

    walltime_step: str
    memory_step: str


@dataclass(frozen=True)
class NodeTypeConfig:
    """As `voxcast.allocation.machines.NodeType`; null for what this machine has."""

    partition: str
    cores: int | None
    memory: str | None
    gpus: int | None
    usd_per_core_hour: float
    usd_per_gpu_hour: float
    usd_per_gb_hour: float
    charged: Literal["used", "requested"]
    host_class: str | None


@dataclass(frozen=True)
class WaitingConfig:
    """As `voxcast.allocation.waiting.Waiting`."""

    alpha: float
    gamma_s: float


@dataclass(frozen=True)
class PartitionConfig:
    """As `voxcast.allocation.machines.Partition`; null for no limit."""

    max_walltime: str | None
    max_cores: int | None
    max_memory: str | None
    waiting: WaitingConfig


@dataclass(frozen=True)
class ClusterConfig:
    """A file of ``conf/cluster``."""

    billing: BillingConfig
    request: RequestConfig
    node_types: dict[str, NodeTypeConfig]
    partitions: dict[str, PartitionConfig]


@dataclass(frozen=True)
class PolicyConfig:
    """A file of ``conf/policy``, see `voxcast.allocation.assessment.Policy`."""

    confidence: float
    memory_margin: float
    hour_in_core_hours: float
