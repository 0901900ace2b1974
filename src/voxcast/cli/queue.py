"""``voxcast queue TRACE``: simulate a queue with the requests of a trace, or with others.

A trace is a file in Standard Workload Format, or a history whose runs have a time of submission
and a limit, as those of ``voxcast import sacct`` do.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from voxcast.allocation.queueing import QueueReport
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
        "--requests", type=Path, metavar="CSV",
        help="columns job, requested_s: also replay with these requests; other jobs are unchanged",
    )  # fmt: skip
    parser.add_argument("--no-backfill", action="store_true", help="no job overtakes another")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)

    from voxcast.allocation.queueing import report, simulate
    from voxcast.allocation.workload import read_requests, read_swf

    if args.trace.is_dir():
        from voxcast.allocation.history_workload import workload_of_history
        from voxcast.history.stored_history import open_history

        trace = workload_of_history(open_history(args.trace).runs, args.trace)
        for reason, count in Counter(remark.reason for remark in trace.skipped).items():
            LOGGER.warning("%d runs are excluded: %s", count, reason)
    else:
        trace = read_swf(args.trace)
        _log_left_out(trace)
    processors = trace.max_processors if args.processors is None else args.processors
    if processors is None:
        raise ConfigError(
            "does not state the size of the machine", args.trace, "give --processors"
        )
    replays: dict[str, Workload] = {"given": trace}
    if args.requests is not None:
        replays["recommended"] = trace.with_requests(read_requests(args.requests))
    backfill = not args.no_backfill
    reports = {
        name: report(workload, simulate(workload, processors, backfill=backfill), processors)
        for name, workload in replays.items()
    }
    if args.json:
        content = {
            "trace": str(args.trace),
            "processors": processors,
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
            f"  killed at the requested time: {result.killed}; without these jobs "
            f"{100 * result.useful_utilisation:.1f} % in use"
        )
