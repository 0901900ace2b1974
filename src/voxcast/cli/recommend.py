"""``voxcast recommend IMAGE…``: what to ask the scheduler for, per image and as one array job."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli import project
from voxcast.cli.champion import Champion, add_arguments, champion
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, TableError, one_line
from voxcast.quantities import format_seconds, parse_seconds, parse_usd

if TYPE_CHECKING:
    from voxcast.allocation.machines import Candidate, Cluster
    from voxcast.cli.advice import Answered
    from voxcast.config import Here, Site

IMAGES_AT_ONCE = 64  # that are asked about together


def main(argv: list[str]) -> int:
    """Print every configuration with its cost and time, and which to take."""
    parser = argparse.ArgumentParser(prog="voxcast recommend", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument(
        "--deadline", metavar="2h|WHEN", help="hard limit: done in so long, or by 2030-01-31T18:00"
    )
    parser.add_argument("--budget", metavar="USD", help="hard limit: what one image may cost")
    parser.add_argument("--cluster", help="of conf/cluster (default: as conf/submit.yaml says)")
    parser.add_argument("--policy", help="of conf/policy: cautious, balanced or thrifty")
    parser.add_argument("--partition", help="use this partition only")
    parser.add_argument(
        "--waiting", type=Path, metavar="FILE",
        help="fit waiting times to this output of `sacct -X -P`, or trace.swf",
    )  # fmt: skip
    parser.add_argument(
        "-S", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="change a price or a limit, e.g. cluster.billing.whole_node=true",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_arguments(parser)
    args = parser.parse_intermixed_args(argv)

    from voxcast import config
    from voxcast.allocation.recommend import Limits
    from voxcast.cli.advice import Advice, as_json, show

    budget = None if args.budget is None else parse_usd(args.budget)
    limits = Limits(None if args.deadline is None else _deadline(args.deadline), budget)
    folder = project.require(args.project)
    site = config.load_submit(
        folder / config.CONF_DIR, args.cluster, args.policy, args.overrides, here=_here
    )
    cluster = site.cluster if args.waiting is None else _waiting(site.cluster, args.waiting)
    asked = champion(args)
    candidates = cluster.candidates(asked.configurations, args.partition)
    answered, code = _ask(asked, args.images, candidates, site, at_once=not args.url)
    if not answered:
        return EXIT_BAD_INPUT
    advice = Advice.of(cluster, site.policy, limits, candidates, answered)
    for image, reason in advice.unfit():
        print(f"voxcast: {image}: {reason}", file=sys.stderr)
        code = EXIT_BAD_INPUT
    if args.json:
        print(json.dumps(as_json(advice), indent=2, allow_nan=False))
    else:
        show(advice)
    return code


def _deadline(text: str) -> float:
    """Return the seconds from now until a moment, or those that the text names."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return parse_seconds(text)
    try:
        left_s = (moment.astimezone() - datetime.now().astimezone()).total_seconds()
    except (ValueError, OverflowError, OSError):  # the years 1 and 9999, by the time zone
        raise ConfigError(f"is no moment of this clock: {text}", "--deadline") from None
    if left_s <= 0:
        raise ConfigError(f"lies in the past: {text}", "--deadline")
    return left_s


def _here() -> Here:
    from voxcast.config import Here
    from voxcast.profiling.host import host_facts

    facts = host_facts()
    return Here(facts.cores, facts.memory_bytes, len(facts.gpu_models))


def _waiting(cluster: Cluster, path: Path) -> Cluster:
    """Return the cluster with waiting times fitted to jobs that fit one of its nodes."""
    from dataclasses import replace

    from voxcast.allocation.accounting import queued_jobs
    from voxcast.allocation.waiting import fit_waiting

    jobs = queued_jobs(path)
    partitions = []
    fitted = 0
    refused: TableError | None = None
    for own in cluster.partitions:
        cores = [node.cores for node in cluster.node_types if node.partition == own.name]
        like = jobs.of(own.name, max(cores, default=0))
        if not len(like.requested_s):
            print(f"voxcast: {path}: has no job of {own.name}, which stays as it is configured",
                  file=sys.stderr)  # fmt: skip
            partitions.append(own)
            continue
        try:
            fit = fit_waiting(like.requested_s, like.waited_s)
        except TableError as error:  # the others are fitted all the same
            refused = error
            print(f"voxcast: {own.name} stays as it is configured: {one_line(error)}",
                  file=sys.stderr)  # fmt: skip
            partitions.append(own)
            continue
        fitted += 1
        partitions.append(replace(own, waiting=fit.waiting))
        print(
            f"voxcast: {own.name}: a request of 1 h waits "
            f"{format_seconds(fit.waiting.of(3600.0).item())} ({fit.jobs} jobs; "
            f"{fit.waiting.alpha:.3g} × request + {fit.waiting.gamma_s:.4g} s)",
            file=sys.stderr,
        )
    if not fitted:
        if refused is not None:
            raise refused
        names = ", ".join(sorted(set(jobs.partitions.tolist())))
        raise TableError(f"has no job of {cluster.name}'s partitions", path, f"it has {names}")
    return replace(cluster, partitions=tuple(partitions))


def _ask(
    asked: Champion,
    images: list[Path],
    candidates: list[Candidate],
    site: Site,
    *,
    at_once: bool,
) -> tuple[list[Answered], int]:
    """Ask about all images; those that cannot be read are named, the others answered."""
    from tqdm import tqdm

    from voxcast.cli.advice import Answered

    # One question for candidates that differ in nothing that the model knows of.
    kinds = {(own.configuration, own.node.host_class): None for own in candidates}
    places = {kind: n for n, kind in enumerate(kinds)}
    found: list[Answered] = []
    waiting: list[tuple[Path, list[dict[str, object]]]] = []
    code = 0

    def answer() -> None:
        rows = [row for _, own in waiting for row in own]
        records = asked.answer(rows, site.policy.confidence, False)
        for n, (image, _) in enumerate(waiting):
            own = records[n * len(kinds) : (n + 1) * len(kinds)]
            of_candidates = [own[places[c.configuration, c.node.host_class]] for c in candidates]
            found.append(Answered(str(image), of_candidates))
        waiting.clear()

    for image in tqdm(images, disable=None, delay=2):
        try:
            rows = asked.questions(image, [configuration for configuration, _ in kinds])
        except ImageError as error:  # the others are answered all the same
            print(f"voxcast: {one_line(error)}", file=sys.stderr)
            code = EXIT_BAD_INPUT
            continue
        for row, (_, host_class) in zip(rows, kinds, strict=True):
            if host_class is not None:
                row["host_class"] = host_class
        waiting.append((image, rows))
        if not at_once or len(waiting) == IMAGES_AT_ONCE:
            answer()
    if waiting:
        answer()
    return found, code
