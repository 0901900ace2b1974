"""``voxcast campaign run|status|lend|collect NAME``: measure a campaign and record it.

Images, catalogue and runs of a campaign are in ``data/campaigns/NAME``, separate from the
project's; its permanent record is collected in ``data/history/NAME``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.campaign_pool import add_cluster_arguments, check_options, run_on_cluster
from voxcast.cli.machine_update import update_after_runs
from voxcast.cli.shared_options import add_project_argument, add_time_budget_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from voxcast.measure.campaign import Campaign

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Run, show or collect a campaign."""
    parser = VerbParser(
        prog="voxcast campaign", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("run", "status", "lend", "collect"))
    parser.add_argument("name", metavar="NAME", help="a file of conf/campaign, without .yaml")
    add_time_budget_argument(parser, "run: start no run that would not finish within this time")
    parser.add_argument(
        "--parallel", type=int, help="run: number of concurrent runs, on separate cores"
    )
    add_cluster_arguments(parser)
    parser.add_argument(
        "--cells",
        type=Path,
        help="lend: file to write (default: build/NAME/cells.json)",
    )
    parser.add_argument(
        "--any-host",
        action="store_true",
        help="also count runs recorded on other hardware; they are not repeated here",
    )
    parser.add_argument(
        "-S", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="change the configuration, as with dvc exp run -S",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    cores = len(os.sched_getaffinity(0))
    if args.parallel is not None and not 1 <= args.parallel <= cores:
        raise ConfigError(f"must be 1 to {cores} here, not {args.parallel}", "--parallel")
    check_options(args)
    os.chdir(project.require(args.project))  # all paths are relative to the project
    from voxcast.config.campaigns import project_campaign

    campaign = project_campaign(args.name, args.overrides)
    if args.action == "run":
        return _run(campaign, args)
    if args.action == "status":
        _show(campaign, args)
    elif args.action == "lend":
        path = args.cells or Path("build", args.name, "cells.json")
        count = campaign.lend(path)
        print(json.dumps(str(path)) if args.json else f"{path}: {count} cells")
    else:
        parts = [str(part) for part in campaign.collect()]
        print(json.dumps(parts) if args.json else "\n".join(parts) or "nothing new")
    return 0


def _run(campaign: Campaign, args: argparse.Namespace) -> int:
    # Batch systems stop a job with SIGTERM, terminals with SIGHUP; runs are collected then too.
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.default_int_handler)
    overrides: dict[str, Any] = {}
    if args.time_budget is not None:
        overrides["stop_after_s"] = args.time_budget
    if args.parallel is not None:
        overrides["parallel"] = args.parallel
    settings = dataclasses.replace(campaign.settings, **overrides)
    campaign = dataclasses.replace(campaign, settings=settings)
    if args.cluster is not None:
        return run_on_cluster(campaign, args)
    progress = campaign.run(any_host=args.any_host)
    update_after_runs(Path())
    if args.json:
        print(json.dumps({"runs": len(progress.runs), "left": progress.left}))
    else:
        print(f"{args.name}: {len(progress.runs)} runs measured, {progress.left} left")
    if progress.left:
        command = f"voxcast campaign run {args.name}"
        command += f" --time-budget {args.time_budget:g}s" if args.time_budget else ""
        time_left = format_seconds(progress.left_s)
        logger.info("about %s left; continue with `%s`", time_left, command)
    return 0


def _show(campaign: Campaign, args: argparse.Namespace) -> None:
    rows = campaign.status(any_host=args.any_host)
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        start = f"`voxcast campaign run {args.name}` prepares its images and measures"
        print(f"{args.name}: nothing is measured yet; {start}")
        return
    names = ("done", "left", "repeats", "local_runs")
    recorded, left, repeats, local_runs = (sum(row[name] for row in rows) for name in names)
    left_s = sum(row["left_s"] for row in rows)
    print(f"{args.name}: {recorded} runs done, {left} left, about {format_seconds(left_s)}")
    if repeats or local_runs:
        print(f"  on record too: {repeats} repeats of noisy runs, {local_runs} local runs")
    print(_line("app", "scale", "CPUs", "done", "left", "time left", "noisy",
                "other outcomes"))  # fmt: skip
    for row in rows:
        counts = {k: v for k, v in row["outcomes"].items() if k != "completed"}
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
        time_left = format_seconds(row["left_s"])
        print(_line(row["app"], row["scale"], row["cpus"], row["done"], row["left"], time_left,
                    row["noisy"], outcomes))  # fmt: skip


def _line(app: object, scale: object, *others: object) -> str:
    widths = (5, 6, 6, 14, 7)
    numbers = "".join(f"{value!s:>{width}}" for value, width in zip(others, widths, strict=False))
    return f"  {app!s:15}{scale!s:12}{numbers}  {others[-1]}".rstrip()
