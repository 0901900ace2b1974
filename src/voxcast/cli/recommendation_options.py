"""The options of a recommendation, for ``voxcast recommend`` and ``voxcast submit``."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.shared_options import (
    add_champion_arguments,
    champion_of,
    size_of_this_machine,
)
from voxcast.errors import ConfigError, TableError, one_line
from voxcast.quantities import format_bytes, format_seconds, parse_seconds, parse_usd

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from voxcast.allocation.choice import HardLimits
    from voxcast.allocation.machines import Cluster
    from voxcast.allocation.recommendation import Recommendation
    from voxcast.config import Site

LOCAL = "local"  # the cluster that is this machine
IMAGES_PER_CALL = 64  # of a champion in this process

logger = logging.getLogger(__name__)


def add_recommendation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recommendation_of`, with those of the champion."""
    parser.add_argument(
        "--deadline", metavar="2h|WHEN",
        help="hard limit: finish within this duration, or by a time such as 2030-01-31T18:00",
    )  # fmt: skip
    parser.add_argument("--budget", metavar="USD", help="hard limit: maximum cost of one image")
    parser.add_argument(
        "--cluster", help="a cluster of conf/cluster (default: as in conf/submit.yaml)"
    )
    parser.add_argument("--policy", help="a policy of conf/policy: cautious, balanced or thrifty")
    parser.add_argument("--partition", help="use this partition only")
    parser.add_argument(
        "--waiting", type=Path, metavar="FILE",
        help="fit waiting times to the output of `sacct -X -P`, or to a trace in SWF",
    )  # fmt: skip
    parser.add_argument(
        "-S", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="change a price or a limit, e.g. cluster.billing.whole_node=true",
    )  # fmt: skip
    add_champion_arguments(parser)


def hard_limits(args: argparse.Namespace) -> HardLimits:
    """Return the deadline and the budget.

    Raises
    ------
    ConfigError
        If one cannot be read, or is out of range.
    """
    from voxcast.allocation.choice import HardLimits

    budget = None if args.budget is None else parse_usd(args.budget)
    return HardLimits(None if args.deadline is None else _seconds_until(args.deadline), budget)


def site_of(args: argparse.Namespace) -> Site:
    """Return cluster and policy of the project; errors as `voxcast.config.load_submit`.

    Where the cluster's file leaves open how memory is counted, the Slurm of this machine is asked.
    """
    from dataclasses import replace

    from voxcast import config

    folder = project.require(args.project)
    site = config.load_submit(
        folder / config.CONF_DIR,
        args.cluster,
        args.policy,
        args.overrides,
        here=size_of_this_machine,
    )
    if site.cluster.name == LOCAL:
        return site
    from voxcast.hpc.memory_counting import with_memory_counted

    return replace(site, cluster=with_memory_counted(site.cluster))


def refuse_local(site: Site, args: argparse.Namespace) -> None:
    """Refuse the cluster that is this machine, where Slurm is needed.

    Raises
    ------
    ConfigError
        Naming the others.
    """
    from voxcast import config

    if site.cluster.name == LOCAL:
        clusters = config.options(project.require(args.project) / config.CONF_DIR / "cluster")
        names = ", ".join(name for name in clusters if name != LOCAL)
        raise ConfigError(
            "is this machine and has no partitions of Slurm", LOCAL,
            f"choose --cluster from {names or 'none'}, or copy a file of conf/cluster for yours",
        )  # fmt: skip


def recommendation_of(
    args: argparse.Namespace,
    images: Sequence[Path],
    site: Site,
    limits: HardLimits,
    volumes: dict[str, dict[str, Any]] | None = None,
) -> Recommendation | None:
    """Return the recommendation for the images that can be predicted; None if there are none.

    ``volumes`` is filled as that of `voxcast.serving.champion.Champion`.

    Raises
    ------
    VoxcastError
        If cluster, champion or waiting times cannot be had.
    """
    from dataclasses import replace

    from voxcast.allocation.recommendation import Measured, Recommendation
    from voxcast.serving.image_predictions import predict_images

    cluster = site.cluster
    if args.waiting is not None:
        cluster = _with_fitted_waiting(cluster, args.waiting)
    champion = replace(champion_of(args), volumes=volumes)
    measured = None
    if champion.measured:  # not by a server, nor by a bundle of an earlier release
        measured = Measured(champion.host_classes, frozenset(champion.measured))
    cluster = _with_this_machine(cluster, champion.host_classes)
    candidates = cluster.candidates(champion.configurations, args.partition)
    predictions = predict_images(
        champion, images, candidates, site.policy.confidence,
        images_per_call=1 if args.url else IMAGES_PER_CALL, here=cluster.name == LOCAL,
    )  # fmt: skip
    if not predictions:
        return None
    cluster = _with_mapped_files(cluster, str(predictions[0].by_candidate[0]["app"]))
    return Recommendation.of(
        cluster, site.policy, limits, candidates, predictions, measured, champion.parameters
    )


def _with_mapped_files(cluster: Cluster, app: str) -> Cluster:
    """Return the cluster; where resident pages count, with what an application maps."""
    from dataclasses import replace

    if cluster.memory_counted != "rss":
        return cluster
    cluster = replace(cluster, mapped_files_bytes=cluster.added_bytes_of(app))
    added = format_bytes(cluster.added_bytes)
    logger.info("%s counts resident pages: requests are %s larger", cluster.name, added)
    return cluster


def _seconds_until(deadline: str) -> float:
    """Return the seconds until a time, or of a duration."""
    try:
        time = datetime.fromisoformat(deadline)
    except ValueError:
        return parse_seconds(deadline)
    try:
        left_s = (time.astimezone() - datetime.now().astimezone()).total_seconds()
    except (ValueError, OverflowError, OSError):  # years 1 and 9999, depending on the time zone
        raise ConfigError(f"not a valid time: {deadline}", "--deadline") from None
    if left_s <= 0:
        raise ConfigError(f"is in the past: {deadline}", "--deadline")
    return left_s


def _with_this_machine(cluster: Cluster, host_classes: Sequence[str]) -> Cluster:
    """Return the cluster; nodes of this machine get its class if it was measured."""
    from dataclasses import replace

    if cluster.name != LOCAL or not host_classes:
        return cluster
    from voxcast.profiling.host import host_class, host_facts

    here = host_class(host_facts())
    if here not in host_classes:
        return cluster
    nodes = (replace(n, host_class=n.host_class or here) for n in cluster.node_types)
    return replace(cluster, node_types=tuple(nodes))


def _with_fitted_waiting(cluster: Cluster, path: Path) -> Cluster:
    """Return the cluster with waiting times fitted to the jobs that fit one of its nodes."""
    from dataclasses import replace

    from voxcast.allocation.accounting import queued_jobs
    from voxcast.allocation.waiting import fit_waiting

    jobs = queued_jobs(path)
    partitions = []
    fitted = 0
    last_error: TableError | None = None
    for partition in cluster.partitions:
        name = partition.name
        cores = [node.cores for node in cluster.node_types if node.partition == name]
        comparable = jobs.of(name, max(cores, default=0))
        if not len(comparable.requested_s):
            logger.warning("%s: no job of %s; its waiting time stays as configured", path, name)
            partitions.append(partition)
            continue
        try:
            fit = fit_waiting(comparable.requested_s, comparable.waited_s)
        except TableError as error:  # the other partitions are still fitted
            last_error = error
            logger.warning("%s: the waiting time stays as configured: %s", name, one_line(error))
            partitions.append(partition)
            continue
        fitted += 1
        partitions.append(replace(partition, waiting=fit.waiting))
        logger.info(
            "%s: a request of 1 h waits %s (%d jobs; %.3g × request + %.4g s)",
            name, format_seconds(fit.waiting.of(3600.0).item()), fit.jobs,
            fit.waiting.alpha, fit.waiting.gamma_s,
        )  # fmt: skip
    if not fitted:
        if last_error is not None:
            raise last_error
        names = ", ".join(sorted(set(jobs.partitions.tolist())))
        raise TableError(f"has no job of {cluster.name}'s partitions", path, f"it has {names}")
    return replace(cluster, partitions=tuple(partitions))
