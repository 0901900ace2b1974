"""``GET /sites``: clusters and policies to ask for, as the service finds them in ``conf/``."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request

from voxcast.errors import ConfigError, one_line
from voxcast.web.guards import service_router, settings_of

if TYPE_CHECKING:
    from voxcast.allocation.offers import Policy
    from voxcast.allocation.site import Cluster
    from voxcast.config import Site

CONF, SUBMIT, GROUPS = "conf", "submit.yaml", ("cluster", "policy")

router = service_router()

Stamps = tuple[tuple[str, int, int], ...]


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


@router.get("/sites", summary="Clusters and policies")
async def sites(request: Request) -> dict[str, Any]:
    """List the clusters and policies of the project, with the prices and limits they have now.

    One whose file cannot be used has the reason as ``problem``.
    """
    return await asyncio.to_thread(_answer, sites_of(request))


def _answer(present: Sites) -> dict[str, Any]:
    default_cluster = default_policy = None
    try:
        default = present.site()
        default_cluster, default_policy = default.cluster.name, default.policy.name
    except ConfigError:  # the files that can be used are still listed
        pass
    return {
        "clusters": [
            _facts(name, lambda name: _cluster(present.site(cluster=name).cluster))
            for name in present.names("cluster")
        ],
        "policies": [
            _facts(name, lambda name: _policy(present.site(policy=name).policy))
            for name in present.names("policy")
        ],
        "default_cluster": default_cluster,
        "default_policy": default_policy,
    }


def _facts(name: str, read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {**read(name), "problem": None}
    except ConfigError as error:
        return {"name": name, "problem": one_line(error)}


def _cluster(cluster: Cluster) -> dict[str, Any]:
    partitions = [
        {**asdict(partition), "wait_of_1_h_s": float(partition.waiting.of(3600.0))}
        for partition in cluster.partitions
    ]
    return {
        "name": cluster.name,
        "this_machine": cluster.is_this_machine,
        "free": cluster.free,
        "partitions": partitions,
        "node_types": [asdict(node) for node in cluster.node_types],
    }


def _policy(policy: Policy) -> dict[str, Any]:
    return {**asdict(policy), "risk": policy.risk}
