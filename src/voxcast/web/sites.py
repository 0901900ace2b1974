"""``GET /sites``: clusters and policies to ask for, as the service finds them in ``conf/``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request

from voxcast.errors import ConfigError, one_line
from voxcast.web.guards import service_router, settings_of

if TYPE_CHECKING:
    from voxcast.allocation.offers import Policy
    from voxcast.allocation.site import Cluster
    from voxcast.config import Site

CONF, SUBMIT = "conf", "submit.yaml"

router = service_router()


def conf_dir_of(request: Request) -> Path:
    """Return ``conf`` of the project, or of the installation where it describes no site."""
    project = settings_of(request).project
    if project is None or not (project / CONF / SUBMIT).is_file():
        from voxcast.config.project_files import packaged_folder

        project = packaged_folder()
    return project / CONF


def names_in(conf_dir: Path, group: str) -> list[str]:
    """Return the names of the files of a group."""
    from voxcast import config  # takes half a second, which the start of a service has not

    return config.options(conf_dir / group)


def site_of(conf_dir: Path, cluster: str | None = None, policy: str | None = None) -> Site:
    """Return a cluster and a policy as their files are now; see `voxcast.config.current_site`."""
    from voxcast import config

    return config.current_site(conf_dir, cluster, policy)


@router.get("/sites", summary="Clusters and policies")
async def sites(request: Request) -> dict[str, Any]:
    """List the clusters and policies of the project, with the prices and limits they have now.

    One whose file cannot be used has the reason as ``problem``.
    """
    return await asyncio.to_thread(_answer, conf_dir_of(request))


def _answer(conf_dir: Path) -> dict[str, Any]:
    default_cluster = default_policy = None
    try:
        default = site_of(conf_dir)
        default_cluster, default_policy = default.cluster.name, default.policy.name
    except ConfigError:  # the files that can be used are still listed
        pass
    return {
        "clusters": [
            _facts(name, lambda name: _cluster(site_of(conf_dir, cluster=name).cluster))
            for name in names_in(conf_dir, "cluster")
        ],
        "policies": [
            _facts(name, lambda name: _policy(site_of(conf_dir, policy=name).policy))
            for name in names_in(conf_dir, "policy")
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
