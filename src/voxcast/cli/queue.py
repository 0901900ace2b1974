"""``voxcast queue TRACE.swf``: a queue replayed, as jobs asked and as they might have asked."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from voxcast.allocation.queueing import QueueReport
    from voxcast.allocation.workload import Workload

SAID_LINES = 20  # bad lines that are listed one by one


def main(argv: list[str]) -> int:
    """Simulate first come, first served with EASY backfill and print what users see of it."""
    parser = argparse.ArgumentParser(prog="voxcast queue", description=__doc__)
    parser.add_argument("trace", type=Path, metavar="TRACE.swf", help="Standard Workload Format")
    parser.add_argument(
        "--processors", type=int, metavar="N", help="default: MaxProcs of the trace"
    )
    parser.add_argument(
        "--requests", type=Path, metavar="CSV",
        help="columns job, requested_s: replay also with these requests; others stay as they are",
    )  # fmt: skip
    parser.add_argument("--no-backfill", action="store_true", help="nobody overtakes")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)

    from voxcast.allocation.queueing import report, simulate
    from voxcast.allocation.workload import read_requests, read_swf

    trace = read_swf(args.trace)
    _say(trace)
    processors = trace.max_processors if args.processors is None else args.processors
    if processors is None:
        raise ConfigError("does not say how large the machine is", args.trace, "give --processors")
    replays: dict[str, Workload] = {"given": trace}
    if args.requests is not None:
        replays["recommended"] = trace.with_requests(read_requests(args.requests))
    found = {
        name: report(own, simulate(own, processors, backfill=not args.no_backfill), processors)
        for name, own in replays.items()
    }
    if args.json:
        content = {
            "trace": str(args.trace),
            "processors": processors,
            "backfill": not args.no_backfill,
            "skipped": len(trace.skipped),
            "bad": [{"line": r.line, "reason": r.reason} for r in trace.bad],
            "replays": {name: asdict(own) for name, own in found.items()},
        }
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    for name, own in found.items():
        _show(name, own)
    return 0


def _say(trace: Workload) -> None:
    """Say on stderr what could not be used."""
    for remark in trace.bad[:SAID_LINES]:
        print(f"voxcast: line {remark.line}: {remark.reason}", file=sys.stderr)
    if (more := len(trace.bad) - SAID_LINES) > 0:
        print(f"voxcast: and {more} lines more", file=sys.stderr)
    if trace.skipped:
        print(f"voxcast: {len(trace.skipped)} jobs never ran and are left out", file=sys.stderr)


def _show(name: str, own: QueueReport) -> None:
    print(
        f"requests as {name}: {own.jobs} jobs, mean wait {format_seconds(own.mean_wait_s)}, "
        f"mean stretch {own.mean_bounded_stretch:.2f}, "
        f"{100 * own.utilisation:.1f} % of the processors in use"
    )
    if own.killed:
        print(
            f"  {own.killed} jobs were ended at their requested time; without them "
            f"{100 * own.useful_utilisation:.1f} % in use"
        )
