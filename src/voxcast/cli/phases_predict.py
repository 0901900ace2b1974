"""``voxcast phases predict``, and the options of all actions that read a communication trace."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.phases.signature import MIN_SHARE, TOLERANCE_DECADES
from voxcast.quantities import format_seconds, format_short_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.phases.logical import LogicalTrace
    from voxcast.phases.predict import TimePrediction


Trace = Annotated[Path, Argument(metavar="TRACE", show_default=False)]
Level = Annotated[
    float, Option("--level", metavar="P", help="Probability that the interval holds the time.")
]
Tolerance = Annotated[
    float | None,
    Option(
        "--tolerance", metavar="DECADES",
        help=f"Largest difference from the founder of a phase ({TOLERANCE_DECADES:g}).",
    ),
]  # fmt: skip
MinShare = Annotated[
    float | None,
    Option(
        "--min-share", metavar="SHARE",
        help=f"Drop phases with a smaller share of the time ({MIN_SHARE:g}).",
    ),
]  # fmt: skip


def grouping(
    tolerance: float | None, min_share: float | None, usual: float = TOLERANCE_DECADES
) -> tuple[float, float]:
    """Return tolerance and least share, by default the usual.

    Raises
    ------
    ConfigError
        If one is out of range.
    """
    tolerance = usual if tolerance is None else tolerance
    min_share = MIN_SHARE if min_share is None else min_share
    if not 0 <= tolerance < float("inf"):
        raise ConfigError(f"must be 0 or more, not {tolerance:g}", "--tolerance")
    if not 0 <= min_share <= 1:
        raise ConfigError(f"must be 0 to 1, not {min_share:g}", "--min-share")
    return tolerance, min_share


def fraction(text: str, option: str) -> float:
    """Return a number written as such or as a fraction.

    Raises
    ------
    ConfigError
        If it is neither.

    Examples
    --------
    >>> fraction("0.2", "--check"), fraction("40/200", "--check")
    (0.2, 0.2)
    """
    numerator, slash, denominator = text.partition("/")
    try:
        return float(numerator) / (float(denominator) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"must be a share such as 0.2 or 40/200, not {text!r}", option) from None


def checked_share(value: float, option: str) -> float:
    """Return a share above 0 and below 1.

    Raises
    ------
    ConfigError
        If it is not.
    """
    if not 0 < value < 1:
        raise ConfigError(f"must be between 0 and 1, not {value:g}", option)
    return value


def read_logical_trace(path: Path) -> LogicalTrace:
    """Read a trace and order it; its gaps are named on stderr.

    Raises
    ------
    RunError
        If it cannot be read, or has no events.
    """
    from voxcast.errors import RunError
    from voxcast.phases.events import read_trace
    from voxcast.phases.logical import logical_trace

    trace = logical_trace(read_trace(path))
    if not len(trace):
        raise RunError("has no events", path, "it was not traced; record it again")
    for lack in trace.missing:
        print(f"voxcast: {path}: missing: {lack}", file=sys.stderr)
    return trace


def predict(
    trace_path: Trace,
    share_text: Annotated[
        str | None,
        Option(
            "--fraction",
            metavar="SHARE",
            help="The trace has this share of the iterations, e.g. 0.2 or 40/200.",
        ),
    ] = None,
    of: Annotated[
        float | None,
        Option("--of", metavar="N", help="Cycles of the whole run, which may not be iterations."),
    ] = None,
    check: Annotated[
        str | None,
        Option(
            "--check",
            metavar="SHARE",
            help="The trace is of a whole run: predict it from this share, and compare.",
        ),
    ] = None,
    past: Annotated[
        list[Path] | None,
        Option(
            "--past",
            metavar="TRACE",
            help="A whole run on the same machine, whose error helps to make the interval.",
        ),
    ] = None,
    level: Level = 0.9,
    as_json: options.Json = False,
) -> int:
    """Predict the time of a parallel run from a trace of its first part, with an interval.

    A trace is a folder of `voxcast phases record`, an OTF2 archive, or traces of PyTorch's
    profiler.
    """
    checked_share(level, "--level")
    shares = [text for text in (share_text, check) if text is not None]
    if len(shares) + (of is not None) != 1:
        raise ConfigError("give one of --fraction, --of and --check", "phases predict")
    share = 0.0
    if shares:
        option = "--check" if check is not None else "--fraction"
        share = checked_share(fraction(shares[0], option), option)

    from voxcast.phases import predict as phases
    from voxcast.phases.signature import tick_times

    trace = read_logical_trace(trace_path)
    measured_s = None
    if check is not None:
        cycles, prediction = phases.backtest(trace, share, level)
        measured_s = tick_times(trace).elapsed_s
    else:
        cycles = phases.cycles_of(trace)
        count = cycles.count / share if of is None else of
        prediction = phases.predict(trace, cycles, count, level)
    if past:
        fraction_run = prediction.cycles / prediction.cycles_of_run
        prediction = phases.calibrated(prediction, _past_log_errors(past, fraction_run))
    if as_json:
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
