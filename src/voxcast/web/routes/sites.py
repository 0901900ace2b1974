"""``GET /sites``: clusters and policies to ask for, as the service finds them in ``conf/``."""

from __future__ import annotations

import asyncio
import functools
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from voxcast.errors import ConfigError, one_line
from voxcast.web.question_schema import problems
from voxcast.web.questions import settings_of

if TYPE_CHECKING:
    from voxcast.config import Site

CONF, SUBMIT, GROUPS = "conf", "submit.yaml", ("cluster", "policy")

router = APIRouter()

Stamps = tuple[tuple[str, int, int], ...]


class PartitionFacts(BaseModel):
    """A partition; null means unlimited."""

    name: str
    max_walltime_s: float | None
    max_cores: int | None
    max_memory_bytes: int | None
    wait_of_1_h_s: float = Field(description="expected waiting time of a request of an hour")


class NodeTypeFacts(BaseModel):
    """A kind of node, and the cost of an hour."""

    name: str
    partition: str
    cores: int
    gpus: int
    memory_bytes: int
    usd_per_core_hour: float
    usd_per_gpu_hour: float
    usd_per_gb_hour: float
    charged: Literal["used", "requested"]
    host_class: str | None


class ClusterFacts(BaseModel):
    """A cluster that `POST /recommend` takes."""

    name: str
    this_machine: bool = Field(
        default=False, description="the machine of the service, without Slurm"
    )
    free: bool = Field(default=False, description="charges nothing; its costs are in core-hours")
    partitions: list[PartitionFacts] = []
    node_types: list[NodeTypeFacts] = []
    problem: str | None = Field(default=None, description="why its file cannot be used")


class PolicyFacts(BaseModel):
    """How much risk is accepted, and what time is worth."""

    name: str
    confidence: float | None = Field(default=None, description="of requested time, and of memory")
    risk: float | None = Field(default=None, description="of requesting too little, at most")
    memory_margin: float | None = Field(default=None, description="share added to its bound")
    hour_in_core_hours: float | None = Field(default=None, description="worth of an hour")
    problem: str | None = Field(default=None, description="why its file cannot be used")


class SitesAnswer(BaseModel):
    """What can be chosen in `POST /recommend`."""

    clusters: list[ClusterFacts]
    policies: list[PolicyFacts]
    default_cluster: str | None
    default_policy: str | None


@dataclass
class Sites:
    """The clusters and policies of a folder ``conf``, composed again when a file has changed.

    How Slurm counts memory is asked when a file is composed, and then taken to stay so.
    """

    conf_dir: Path
    _composed: dict[tuple[str | None, str | None], tuple[Stamps, Site]] = field(
        default_factory=dict
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def names(self, group: str) -> list[str]:
        """Return the names of the files of a group."""
        from voxcast import config  # takes half a second, which the start of a service has not

        return config.options(self.conf_dir / group)

    def site(self, cluster: str | None = None, policy: str | None = None) -> Site:
        """Return a cluster and a policy; None for the ones in ``submit.yaml``.

        Raises
        ------
        ConfigError
            If the file is missing or cannot be used.
        """
        from voxcast import config

        for group, name in zip(GROUPS, (cluster, policy), strict=True):
            names = self.names(group)
            if name is not None and name not in names:
                choices = f"choose from {', '.join(names) or 'none'}"
                raise ConfigError(f"unknown {group}", name[:100], choices)
        with self._lock:  # Hydra composes one at a time
            stamps = self._stamps()
            present = self._composed.get((cluster, policy))
            if present is None or present[0] != stamps:
                composed = config.current_site(self.conf_dir, cluster, policy)
                present = self._composed[cluster, policy] = (stamps, composed)
        return present[1]

    def _stamps(self) -> Stamps:
        paths = [
            self.conf_dir / SUBMIT,
            *(path for group in GROUPS for path in self.conf_dir.glob(f"{group}/*.yaml")),
        ]
        statuses = [(str(path), path.stat()) for path in sorted(paths)]
        return tuple((path, status.st_mtime_ns, status.st_size) for path, status in statuses)


@functools.cache
def sites_in(project: Path | None) -> Sites:
    """Return the sites of a project; those of the installation where it describes none."""
    if project is None or not (project / CONF / SUBMIT).is_file():
        from voxcast.config.project_files import packaged_folder

        project = packaged_folder()
    return Sites(project / CONF)


def sites_of(request: Request) -> Sites:
    """Return the sites of a service."""
    return sites_in(settings_of(request).project)


@router.get("/sites", summary="Clusters and policies", responses=problems(401, 429))
async def sites(request: Request) -> SitesAnswer:
    """List the clusters and policies of the project, with the prices and limits they have now."""
    return await asyncio.to_thread(_answer, sites_of(request))


def _answer(present: Sites) -> SitesAnswer:
    default_cluster = default_policy = None
    try:
        default = present.site()
        default_cluster, default_policy = default.cluster.name, default.policy.name
    except ConfigError:  # the files that can be used are still listed
        pass
    return SitesAnswer(
        clusters=[_cluster(present, name) for name in present.names("cluster")],
        policies=[_policy(present, name) for name in present.names("policy")],
        default_cluster=default_cluster,
        default_policy=default_policy,
    )


def _cluster(present: Sites, name: str) -> ClusterFacts:
    try:
        cluster = present.site(cluster=name).cluster
    except ConfigError as error:
        return ClusterFacts(name=name, problem=one_line(error))
    return ClusterFacts(
        name=name,
        this_machine=cluster.is_this_machine,
        free=cluster.free,
        partitions=[
            PartitionFacts(
                name=partition.name,
                max_walltime_s=partition.max_walltime_s,
                max_cores=partition.max_cores,
                max_memory_bytes=partition.max_memory_bytes,
                wait_of_1_h_s=float(partition.waiting.of(3600.0)),
            )
            for partition in cluster.partitions
        ],
        node_types=[
            NodeTypeFacts(
                name=node.name,
                partition=node.partition,
                cores=node.cores,
                gpus=node.gpus,
                memory_bytes=node.memory_bytes,
                usd_per_core_hour=node.prices.usd_per_core_hour,
                usd_per_gpu_hour=node.prices.usd_per_gpu_hour,
                usd_per_gb_hour=node.prices.usd_per_gb_hour,
                charged=node.charged,
                host_class=node.host_class,
            )
            for node in cluster.node_types
        ],
    )


def _policy(present: Sites, name: str) -> PolicyFacts:
    try:
        policy = present.site(policy=name).policy
    except ConfigError as error:
        return PolicyFacts(name=name, problem=one_line(error))
    return PolicyFacts(
        name=name,
        confidence=policy.confidence,
        risk=policy.risk,
        memory_margin=policy.memory_margin,
        hour_in_core_hours=policy.hour_in_core_hours,
    )
