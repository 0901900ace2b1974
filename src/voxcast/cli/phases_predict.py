"""``voxcast phases predict TRACE``: the time of a parallel run from a trace of its first part.

A trace is a folder of ``voxcast trace``, an OTF2 archive, or traces of PyTorch's profiler. How far
the run had come is given by --fraction, such as 40/200 for 40 of 200 iterations.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.trace_options import (
    add_level_argument,
    checked_share,
    fraction,
    read_logical_trace,
)
from voxcast.cli.verb_parser import VerbParser
from voxcast.quantities import format_seconds, format_short_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.phases.predict import TimePrediction


def main(argv: list[str]) -> int:
    """Print the predicted time with its interval."""
    parser = VerbParser(prog="voxcast phases predict", description=__doc__)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    progress = parser.add_mutually_exclusive_group(required=True)
    progress.add_argument(
        "--fraction",
        type=fraction,
        metavar="SHARE",
        help="the trace has this share of the iterations, e.g. 0.2 or 40/200",
    )
    progress.add_argument(
        "--of",
        type=float,
        metavar="N",
        help="cycles of the whole run, which may not be iterations",
    )
    progress.add_argument(
        "--check", type=fraction, metavar="SHARE",
        help="the trace is of a whole run: predict it from this share, and compare",
    )  # fmt: skip
    parser.add_argument(
        "--past", type=Path, nargs="+", default=[], metavar="TRACE",
        help="whole runs on the same machine, whose errors of prediction make the interval",
    )  # fmt: skip
    add_level_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    checked_share(args.level, "--level")
    for option in ("fraction", "check"):
        if getattr(args, option) is not None:
            checked_share(getattr(args, option), f"--{option}")

    from voxcast.phases.predict import backtest, calibrated, cycles_of, predict
    from voxcast.phases.signature import tick_times

    trace = read_logical_trace(args.trace)
    measured_s = None
    if args.check is not None:
        cycles, prediction = backtest(trace, args.check, args.level)
        measured_s = tick_times(trace).elapsed_s
    else:
        cycles = cycles_of(trace)
        count = args.of if args.fraction is None else cycles.count / args.fraction
        prediction = predict(trace, cycles, count, args.level)
    if args.past:
        share = prediction.cycles / prediction.cycles_of_run
        prediction = calibrated(prediction, _past_log_errors(args.past, share))
    if args.json:
        content = {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(prediction).items()
        }
        content |= {"measured_s": measured_s, "cycle": asdict(cycles)}
        content |= {"processes": len(trace.events.processes), "source": trace.events.source}
        print(json.dumps(content, indent=2, allow_nan=False))
        return 0
    print(
        f"{trace.events.source}: {round(prediction.cycles)} of {round(prediction.cycles_of_run)} "
        f"cycles, one for each tick of {cycles.counted}; "
        f"{format_seconds(prediction.elapsed_s)} so far"
    )
    print(f"  {_interval(prediction)}; {format_short_seconds(prediction.cycle_s)} a cycle")
    if prediction.trend:
        print(f"  {prediction.trend}; the prediction does not continue that")
    if measured_s is not None:
        error = prediction.total_s / measured_s - 1
        print(f"  measured {format_seconds(measured_s)}: the prediction is off by {error:+.1%}")
    return 0


def _interval(prediction: TimePrediction) -> str:
    total = f"the run takes {format_seconds(prediction.total_s)}"
    if math.isinf(prediction.upper_s) and prediction.trend:
        return f"{total}; no interval, since cycles change"
    if math.isinf(prediction.upper_s):
        return f"{total}; too few cycles for an interval"
    return (
        f"{total}, {100 * prediction.level:.3g}% interval {format_seconds(prediction.lower_s)} to "
        f"{format_seconds(prediction.upper_s)} ({prediction.method})"
    )


def _past_log_errors(paths: Sequence[Path], share: float) -> list[float]:
    """Return the logarithms of measured over predicted time, of whole runs cut at a share."""
    from voxcast.phases.predict import backtest
    from voxcast.phases.signature import tick_times

    errors = []
    for number, path in enumerate(paths):
        if sys.stderr.isatty():
            print(f"\rpast run {number + 1} of {len(paths)}", end="", file=sys.stderr)
        trace = read_logical_trace(path)
        _, prediction = backtest(trace, share)
        errors.append(math.log(tick_times(trace).elapsed_s / prediction.total_s))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return errors
