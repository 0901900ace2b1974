"""``voxcast phases signature TRACE``: the phases of a parallel run, with their times and weights.

The time of a phase is the mean of its ticks, by the slowest process; the sum of time times weight
is the time of the run. A trace is what ``voxcast phases predict`` reads.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.grouping_options import add_grouping_arguments, grouping_options
from voxcast.cli.trace_options import read_logical_trace
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.quantities import counted, format_seconds, format_short_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from voxcast.phases.signature import Signature


def main(argv: list[str]) -> int:
    """Print the signature."""
    parser = VerbParser(prog="voxcast phases signature", description=__doc__)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    add_grouping_arguments(parser)
    parser.add_argument(
        "--passes", type=int, metavar="N", help="times from so many ticks of each phase (all)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)

    from voxcast.phases.signature import phases_of, signature

    tolerance, min_share = grouping_options(args)
    if args.passes is not None and args.passes < 1:
        raise ConfigError(f"must be at least 1, not {args.passes}", "--passes")
    trace = read_logical_trace(args.trace)
    grouping = phases_of(trace, tolerance, min_share=min_share)
    result = signature(trace, grouping, passes=args.passes)
    if result.dropped_phases:
        print(
            f"voxcast: {counted(result.dropped_phases, 'phase')} with less than "
            f"{100 * min_share:g}% of the time of all processes dropped, "
            f"{format_short_seconds(result.dropped_s)} together",
            file=sys.stderr,
        )
    if args.json:
        unit = trace.events.computation_unit
        content = asdict(result) | {"total_s": result.total_s, "computation_unit": unit}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show(result)
    return 0


def _show(result: Signature) -> None:
    print(
        f"{result.source}: {counted(result.processes, 'process')}, "
        f"{counted(result.ticks, 'tick')}, "
        f"{format_seconds(result.elapsed_s)}; {result.communication_share:.0%} of the time of all "
        "processes in communication"
    )
    rows = [("phase", "operations", "weight", "time", "computation", "communication", "share")]
    rows += [
        (str(n), phase.communication, str(phase.weight), format_short_seconds(phase.time_s),
         format_short_seconds(phase.computation_s), format_short_seconds(phase.communication_s),
         f"{phase.share:.1%}")
        for n, phase in enumerate(result.phases)
    ]  # fmt: skip
    print(text_table(rows, "<<>>>>>", indent="  "))
    beside = []
    if result.dropped_phases:
        dropped = counted(result.dropped_phases, "dropped phase")
        beside.append(f"{dropped} {format_short_seconds(result.dropped_s)}")
    if result.after_s > 0:
        beside.append(f"after the last event {format_short_seconds(result.after_s)}")
    print(
        f"  sum of weight × time{''.join(f', {text}' for text in beside)}: "
        f"{format_seconds(result.total_s)}"
    )
