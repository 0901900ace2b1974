"""The options of a recommendation, for ``voxcast recommend`` and ``voxcast submit``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.shared_options import add_champion_arguments, champion_of
from voxcast.errors import ConfigError, TableError, one_line
from voxcast.quantities import format_seconds, parse_usd

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from voxcast.allocation.offers import HardLimits
    from voxcast.allocation.recommendation import Recommendation
    from voxcast.allocation.site import Cluster
    from voxcast.config import Site

IMAGES_PER_CALL = 64  # of a champion in this process

logger = logging.getLogger(__name__)


def add_recommendation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recommendation_of`, with the champion's."""
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
        help="fit waiting times to the output of `sacct -X -P`",
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
    from voxcast.allocation.offers import HardLimits, seconds_until

    deadline = args.deadline
    return HardLimits(
        None if deadline is None else seconds_until(deadline, "--deadline"),
        None if args.budget is None else parse_usd(args.budget),
    )


def site_of(args: argparse.Namespace) -> Site:
    """Return cluster and policy of the project; errors as `voxcast.config.load_submit`.

    Where the cluster's file leaves open how memory is counted, the Slurm of this machine is asked.
    """
    from voxcast import config

    conf_dir = project.require(args.project) / config.CONF_DIR
    return config.current_site(conf_dir, args.cluster, args.policy, args.overrides)


def refuse_local(site: Site, args: argparse.Namespace) -> None:
    """Refuse the cluster that is this machine, where Slurm is needed.

    Raises
    ------
    ConfigError
        Naming the other clusters.
    """
    from voxcast import config
    from voxcast.allocation.site import THIS_MACHINE

    if site.cluster.is_this_machine:
        clusters = config.options(project.require(args.project) / config.CONF_DIR / "cluster")
        names = ", ".join(name for name in clusters if name != THIS_MACHINE)
        raise ConfigError(
            "has no partitions of Slurm, as it is this machine", THIS_MACHINE,
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

    ``volumes`` is filled as in `voxcast.serving.champion.Champion`.

    Raises
    ------
    VoxcastError
        If cluster, champion or waiting times cannot be had.
    """
    from dataclasses import replace

    from voxcast.serving.site_candidates import SiteCandidates, predict_images

    cluster = site.cluster
    if args.waiting is not None:
        cluster = _with_fitted_waiting(cluster, args.waiting)
    champion = replace(champion_of(args), volumes=volumes)
    candidates = SiteCandidates.of(
        cluster, champion.configurations, champion.host_classes,
        partition=args.partition, host=champion.host,
    )  # fmt: skip
    images_per_call = 1 if args.url else IMAGES_PER_CALL
    predictions = predict_images(
        champion, images, candidates, site.policy.confidence, images_per_call=images_per_call
    )
    if not predictions:
        return None
    return candidates.recommendation(
        site.policy,
        limits,
        predictions,
        champion.host_classes,
        champion.measured,
        champion.parameters,
    )


def _with_fitted_waiting(cluster: Cluster, path: Path) -> Cluster:
    """Return the cluster with waiting times fitted to the jobs that fit one of its nodes."""
    from dataclasses import replace

    from voxcast.allocation.site import fit_waiting
    from voxcast.runs.slurm import waits

    jobs = waits(path)
    partitions = []
    fitted = 0
    last_error: TableError | None = None
    for partition in cluster.partitions:
        name = partition.name
        cores = [node.cores for node in cluster.node_types if node.partition == name]
        # Jobs without a partition count for every partition.
        comparable = jobs[
            jobs["partition"].isin(["", name]) & (jobs["cpus"] <= max(cores, default=0))
        ]
        if not len(comparable):
            logger.warning("%s: no job of %s; its waiting time stays as configured", path, name)
            partitions.append(partition)
            continue
        try:
            waiting, count = fit_waiting(comparable["requested_s"], comparable["waited_s"])
        except TableError as error:  # the other partitions are still fitted
            last_error = error
            logger.warning("%s: the waiting time stays as configured: %s", name, one_line(error))
            partitions.append(partition)
            continue
        fitted += 1
        partitions.append(replace(partition, waiting=waiting))
        logger.info(
            "%s: a request of 1 h waits %s (%d jobs; %.3g × request + %.4g s)",
            name, format_seconds(waiting.of(3600.0).item()), count,
            waiting.alpha, waiting.gamma_s,
        )  # fmt: skip
    if not fitted:
        if last_error is not None:
            raise last_error
        names = ", ".join(sorted(set(jobs["partition"])))
        raise TableError(f"has no job of {cluster.name}'s partitions", path, f"it has {names}")
    return replace(cluster, partitions=tuple(partitions))
