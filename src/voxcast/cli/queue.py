"""``voxcast queue TRACE``: simulate a queue with the requests of a trace, or with others.

A trace is a file in Standard Workload Format, or a history whose runs have a time of submission
and a limit, as those of ``voxcast import sacct`` do.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.quantities import format_seconds, parse_bytes

if TYPE_CHECKING:
    import argparse

    from voxcast.allocation.node_room import Machine
    from voxcast.allocation.queue_report import QueueReport
    from voxcast.allocation.workload import Workload

LOGGER = logging.getLogger(__name__)
LISTED_LINES = 20  # maximum number of invalid lines that are listed


def main(argv: list[str]) -> int:
    """Simulate first come, first served with EASY backfill, and print waiting times and use."""
    parser = VerbParser(prog="voxcast queue", description=__doc__)
    parser.add_argument(
        "trace", type=Path, metavar="TRACE.swf|HISTORY", help="a file, or a folder of a history"
    )
    parser.add_argument(
        "--processors", type=int, metavar="N", help="default: MaxProcs of the trace"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, metavar="N",
        help="nodes that share the processors equally (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--node-memory", metavar="64GB", help="requests of memory decide where jobs fit"
    )
    parser.add_argument(
        "--requests", type=Path, action="append", default=[], metavar="CSV",
        help="columns job, requested_s and perhaps requested_bytes (of the whole job): also "
        "replay with these requests; other jobs are unchanged; further rows of a job are what it "
        "asks for after a failure; can be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--resubmit", action="store_true", help="ask for killed jobs again, half as much more"
    )
    parser.add_argument(
        "--peak-at", type=float, default=1.0, metavar="SHARE",
        help="share of its runtime at which a job needs most memory (default: 1, the worst case)",
    )  # fmt: skip
    parser.add_argument("--no-backfill", action="store_true", help="no job overtakes another")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)

    from voxcast.allocation.queue_report import report
    from voxcast.allocation.queueing import simulate
    from voxcast.allocation.request_table import read_requests
    from voxcast.allocation.resubmission import Resubmission

    if not 0 < args.peak_at <= 1:
        raise ConfigError(f"is {args.peak_at:g}", "--peak-at", "give a share above 0, at most 1")
    trace = _trace(args.trace)
    machine = _machine(args, trace)
    tables = {name: read_requests(path) for name, path in _named(args.requests)}
    replays = {"given": (trace, Resubmission())} | {
        name: (table.applied(trace), table.resubmission(trace)) for name, table in tables.items()
    }
    backfill = not args.no_backfill
    reports = {
        name: report(
            workload,
            simulate(
                workload, machine, backfill=backfill, peak_at=args.peak_at,
                resubmission=resubmission if args.resubmit else None,
            ),
            machine.processors,
        )
        for name, (workload, resubmission) in replays.items()
    }  # fmt: skip
    if args.json:
        content = {
            "trace": str(args.trace),
            "processors": machine.processors,
            "nodes": machine.nodes,
            "node_memory_bytes": None if args.node_memory is None else machine.memory_bytes,
            "backfill": backfill,
            "skipped": len(trace.skipped),
            "bad": [{"line": r.line, "reason": r.reason} for r in trace.bad],
            "replays": {name: asdict(result) for name, result in reports.items()},
        }
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    for name, result in reports.items():
        _show(name, result)
    return 0


def _trace(path: Path) -> Workload:
    from voxcast.allocation.workload import read_swf

    if not path.is_dir():
        trace = read_swf(path)
        _log_left_out(trace)
        return trace
    from voxcast.allocation.history_workload import workload_of_history
    from voxcast.history.stored_history import open_history

    trace = workload_of_history(open_history(path).runs, path)
    for reason, count in Counter(remark.reason for remark in trace.skipped).items():
        LOGGER.warning("%d runs are excluded: %s", count, reason)
    return trace


def _machine(args: argparse.Namespace, trace: Workload) -> Machine:
    from voxcast.allocation.node_room import Machine

    processors = trace.max_processors if args.processors is None else args.processors
    if processors is None:
        raise ConfigError(
            "does not state the size of the machine", args.trace, "give --processors"
        )
    if args.nodes < 1 or processors % args.nodes:
        raise ConfigError(
            f"{args.nodes} nodes cannot share {processors} processors equally", "--nodes"
        )
    memory = math.inf if args.node_memory is None else parse_bytes(args.node_memory)
    return Machine(args.nodes, processors // args.nodes, memory)


def _named(paths: list[Path]) -> list[tuple[str, Path]]:
    """Return the tables with the names of their replays."""
    if len(paths) == 1:
        return [("recommended", paths[0])]
    names = [path.stem for path in paths]
    if len({"given", *names}) <= len(names):
        raise ConfigError(f"files need different names, not {', '.join(names)}", "--requests")
    return list(zip(names, paths, strict=True))


def _log_left_out(trace: Workload) -> None:
    for remark in trace.bad[:LISTED_LINES]:
        LOGGER.warning("line %d: %s", remark.line, remark.reason)
    if (unlisted := len(trace.bad) - LISTED_LINES) > 0:
        LOGGER.warning("and %d more lines", unlisted)
    if trace.skipped:
        LOGGER.warning("jobs that never ran, excluded: %d", len(trace.skipped))


def _show(name: str, result: QueueReport) -> None:
    print(
        f"requests as {name}: {result.jobs} jobs, mean wait {format_seconds(result.mean_wait_s)}, "
        f"mean stretch {result.mean_bounded_stretch:.2f}, "
        f"{100 * result.utilisation:.1f} % of the processors in use"
    )
    if result.killed:
        print(
            f"  killed at the requested time: {result.killed - result.killed_for_memory}; for "
            f"lack of memory: {result.killed_for_memory}; without these {_runs(result)} "
            f"{100 * result.useful_utilisation:.1f} % in use"
        )
    if result.attempts > result.jobs:
        print(
            f"  asked for again: {result.attempts - result.jobs} times, given up: "
            f"{result.given_up}; {result.lost_core_h:.4g} of {result.held_core_h:.4g} core-hours "
            "lost"
        )
    if result.asked_gb_h:
        print(
            f"  asked for {result.asked_core_h:.4g} core-hours and {result.asked_gb_h:.4g} "
            f"GB-hours, held {result.held_core_h:.4g} and {result.held_gb_h:.4g}"
        )


def _runs(result: QueueReport) -> str:
    return "jobs" if result.attempts == result.jobs else "attempts"
