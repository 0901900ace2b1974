"""``voxcast recommend IMAGE…``: recommended request for each image and for an array job."""

from __future__ import annotations

import json
import logging
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.shared_options import add_champion_arguments, champion_of
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import (
    EXIT_BAD_INPUT,
    ConfigError,
    ImageError,
    RequestError,
    TableError,
    one_line,
)
from voxcast.quantities import format_seconds, parse_seconds, parse_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.allocation.machines import Candidate, Cluster
    from voxcast.allocation.recommendation import ImagePredictions
    from voxcast.config import Here
    from voxcast.serving.champion import Champion

    ImageRows = tuple[Path, list[dict[str, Any]]]  # an image with the rows of its request

LOCAL = "local"  # the cluster that is this machine
IMAGES_PER_CALL = 64  # of a champion in this process

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print every configuration with its cost and time, and the recommended one."""
    parser = VerbParser(prog="voxcast recommend", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
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
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object on stdout")
    output.add_argument(
        "--slurm", action="store_true",
        help="print #SBATCH lines, or the script of one array job for several images",
    )  # fmt: skip
    output.add_argument(
        "--slurm-into", type=Path, metavar="DIR",
        help="write a script and a list of images for each group of similar requests",
    )  # fmt: skip
    add_champion_arguments(parser)
    args = parser.parse_intermixed_args(argv)

    from voxcast import config
    from voxcast.allocation.choice import HardLimits
    from voxcast.allocation.recommendation import Measured, Recommendation
    from voxcast.allocation.recommendation_json import as_json
    from voxcast.allocation.recommendation_slurm import slurm_text, write_array_jobs
    from voxcast.allocation.recommendation_text import text_lines

    budget = None if args.budget is None else parse_usd(args.budget)
    limits = HardLimits(None if args.deadline is None else _seconds_until(args.deadline), budget)
    folder = project.require(args.project)
    site = config.load_submit(
        folder / config.CONF_DIR, args.cluster, args.policy, args.overrides, here=_here
    )
    cluster = site.cluster
    if cluster.name == LOCAL and (args.slurm or args.slurm_into is not None):
        clusters = config.options(folder / config.CONF_DIR / "cluster")
        names = ", ".join(name for name in clusters if name != LOCAL)
        raise ConfigError(
            "is this machine and has no partitions of Slurm", LOCAL,
            f"choose --cluster from {names or 'none'}, or copy a file of conf/cluster for yours",
        )  # fmt: skip
    if args.waiting is not None:
        cluster = _with_fitted_waiting(cluster, args.waiting)
    champion = champion_of(args)
    measured = None
    if champion.measured:  # not by a server, nor by a bundle of an earlier release
        measured = Measured(champion.host_classes, frozenset(champion.measured))
    cluster = _with_this_machine(cluster, champion.host_classes)
    candidates = cluster.candidates(champion.configurations, args.partition)
    images, code = _predict(
        champion, args.images, candidates, site.policy.confidence,
        images_per_call=1 if args.url else IMAGES_PER_CALL, here=cluster.name == LOCAL,
    )  # fmt: skip
    if not images:
        return EXIT_BAD_INPUT
    recommendation = Recommendation.of(cluster, site.policy, limits, candidates, images, measured)
    refused = list(recommendation.without_request())
    if args.json:
        print(json.dumps(as_json(recommendation), indent=2, allow_nan=False))
    elif args.slurm:
        print(slurm_text(recommendation), end="")
    elif args.slurm_into is not None:
        for script in write_array_jobs(recommendation, args.slurm_into):
            print(f"sbatch {shlex.quote(str(script))} COMMAND...")
    else:
        for line in text_lines(recommendation):
            print(line)
        return EXIT_BAD_INPUT if refused else code
    for image, reason in refused:  # which the text says itself
        logger.error("%s: %s", image, reason)
    return EXIT_BAD_INPUT if refused else code


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


def _here() -> Here:
    from voxcast.config import Here
    from voxcast.profiling.host import host_facts

    facts = host_facts()
    return Here(facts.cores, facts.memory_bytes, len(facts.gpu_models))


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


def _predict(
    champion: Champion,
    paths: list[Path],
    candidates: list[Candidate],
    confidence: float,
    *,
    images_per_call: int,
    here: bool,
) -> tuple[list[ImagePredictions], int]:
    """Predict every candidate for all images; ``here`` if the cluster is this machine.

    Images that cannot be read, or that the model refuses, are logged and skipped; the exit code
    tells.
    """
    from tqdm import tqdm

    from voxcast.allocation.recommendation import ImagePredictions

    # The model distinguishes candidates by configuration, host class and machine only.
    keys = [
        (c.configuration, c.node.host_class, None if here else c.node.host_class or c.node.name)
        for c in candidates
    ]
    distinct = list(dict.fromkeys(keys))
    positions = [distinct.index(key) for key in keys]
    images: list[ImagePredictions] = []
    pending: list[ImageRows] = []

    def predict_pending() -> None:
        for path, predictions in _answers(champion, pending, confidence):
            by_candidate = [predictions[position] for position in positions]
            images.append(ImagePredictions(str(path), by_candidate))
        pending.clear()

    for path in tqdm(paths, disable=None, delay=2):
        try:
            rows = champion.request_rows(path, [configuration for configuration, *_ in distinct])
        except (ImageError, RequestError) as error:  # the other images are still predicted
            name = f"{path}: " if isinstance(error, RequestError) else ""
            logger.error("%s%s", name, one_line(error))
            continue
        for row, (_, host_class, host) in zip(rows, distinct, strict=True):
            host = champion.host or host
            stated = {"host_class": host_class, "host": host}
            row |= {name: value for name, value in stated.items() if value is not None}
        pending.append((path, rows))
        if len(pending) == images_per_call:
            predict_pending()
    if pending:
        predict_pending()
    return images, EXIT_BAD_INPUT if len(images) < len(paths) else 0


def _answers(
    champion: Champion, requests: Sequence[ImageRows], confidence: float
) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Yield the predictions of each image that the champion does not refuse; log the others."""
    try:
        predictions = champion.predict([row for _, rows in requests for row in rows], confidence)
    except RequestError as error:
        if len(requests) == 1:
            logger.error("%s: %s", requests[0][0], one_line(error))
            return
        half = len(requests) // 2
        yield from _answers(champion, requests[:half], confidence)
        yield from _answers(champion, requests[half:], confidence)
        return
    start = 0
    for path, rows in requests:
        yield path, predictions[start : start + len(rows)]
        start += len(rows)
