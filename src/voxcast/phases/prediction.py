"""The time of a run from its first cycles, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ConfigError, RunError
from voxcast.phases.batch_means import error_of_sum_s
from voxcast.phases.communication_text import communication_texts
from voxcast.phases.cycle_trend import trend_of
from voxcast.phases.cycles import cycle_times_s, cycles_of
from voxcast.phases.tick_times import before_tick, tick_times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from voxcast.phases.cycle_trend import CycleTrend
    from voxcast.phases.cycles import Cycles
    from voxcast.phases.logical import LogicalTrace

LEVEL = 0.9


@dataclass(frozen=True)
class TimePrediction:
    """Predicted time of a run.

    Attributes
    ----------
    total_s : float
        From the start of the trace to the last event, by the slowest process.
    lower_s, upper_s : float
        Interval at `level`; from the time so far to infinity if there are too few cycles to tell,
        or if they get longer or shorter and no past runs tell how that goes on.
    level : float
        Probability with which the interval is meant to hold the time.
    method : str
        Where the interval comes from.
    elapsed_s : float
        Time of the part that was traced; not predicted.
    cycle_s : float
        Mean time of a cycle.
    cycles, cycles_of_run : float
        Cycles so far, and of the run.
    trend : CycleTrend or None
        If cycles get longer or shorter, which `total_s` does not continue.
    """

    total_s: float
    lower_s: float
    upper_s: float
    level: float
    method: str
    elapsed_s: float
    cycle_s: float
    cycles: float
    cycles_of_run: float
    trend: CycleTrend | None = None


def predict(
    trace: LogicalTrace, cycles: Cycles, cycles_of_run: float, level: float = LEVEL
) -> TimePrediction:
    """Return the time of a run of which a trace has the first cycles.

    It is the time so far, and for each cycle to come the mean of the repeating part. What went
    before that part, such as start and loading, is not extrapolated; the end of the program,
    after its last cycle, is not in it.

    The interval is by means of batches of cycles, see `voxcast.phases.batch_means`. A trend in
    their times is not continued, since nothing tells how far it goes: there is no interval then,
    see `voxcast.phases.cycle_trend`. What changes more slowly than
    the trace is long, such as a neighbour on the machine who comes later, is not in it;
    `calibrated` takes it from earlier runs.

    Parameters
    ----------
    trace : LogicalTrace
        The first part of the run.
    cycles : Cycles
        Of the trace.
    cycles_of_run : float
        Cycles of the whole run.

    Raises
    ------
    RunError
        If the trace has more cycles than the run.
    """
    if not cycles_of_run >= cycles.count:
        raise RunError(
            f"has {cycles.count} cycles, more than the {cycles_of_run:g} of the run",
            trace.events.source, f"count ticks of {cycles.counted}",
        )  # fmt: skip
    times = tick_times(trace)
    # With what came last, in which a change may have founded phases that do not recur yet.
    to_the_end = replace(cycles, stop_tick=len(trace))
    until_now_s = cycle_times_s(trace, to_the_end, times.advance_s)
    passed_s = until_now_s[: cycles.repeated]
    cycle_s = float(passed_s.mean())
    ahead = cycles_of_run - cycles.count
    elapsed_s = times.elapsed_s
    total_s = elapsed_s + ahead * cycle_s
    trend = trend_of(until_now_s) if ahead > 0 else None
    error_s = math.inf if trend else error_of_sum_s(passed_s, ahead, level)
    return TimePrediction(
        total_s, max(elapsed_s, total_s - error_s), total_s + error_s, level,
        "batch means of this run", elapsed_s, cycle_s, cycles.count, cycles_of_run, trend,
    )  # fmt: skip


def calibrated(prediction: TimePrediction, past_log_errors: Iterable[float]) -> TimePrediction:
    """Return a prediction with the interval that past runs support.

    By split conformal prediction: the half width is the ⌈(n+1) level⌉-th of the n absolute errors
    of past predictions, which were made in the same way. It holds the level on average if the run
    is exchangeable with those, whatever the noise is like (Vovk, Gammerman & Shafer 2005).

    Parameters
    ----------
    past_log_errors : iterable of float
        Logarithms of measured over predicted time.

    Raises
    ------
    ConfigError
        If they are too few for the level.
    """
    errors = np.sort(np.abs(list(past_log_errors)))
    rank = math.ceil(round((len(errors) + 1) * prediction.level, 9))
    if rank > len(errors):
        needed = math.ceil(round(prediction.level / (1 - prediction.level), 9))
        raise ConfigError(
            f"an interval at {prediction.level:g} needs {needed} past runs, not {len(errors)}",
            "--past", "name more, or lower --level",
        )  # fmt: skip
    factor = math.exp(float(errors[rank - 1]))
    return replace(
        prediction,
        lower_s=max(prediction.elapsed_s, prediction.total_s / factor),
        upper_s=prediction.total_s * factor,
        method=f"conformal, by {len(errors)} past runs",
    )


def first_part(trace: LogicalTrace, share: float) -> LogicalTrace:
    """Return the trace as it was when a share of its ticks had passed; 0 < share <= 1."""
    return before_tick(trace, max(1, math.ceil(round(share * len(trace), 9))))


def backtest(
    recorded: LogicalTrace, share: float, level: float = LEVEL
) -> tuple[Cycles, TimePrediction]:
    """Predict a run that is on record whole from its first ticks.

    Parameters
    ----------
    recorded : LogicalTrace
        The run.
    share : float
        Share of the ticks to predict from. The number of cycles of the run is taken as given, as
        that of iterations that were asked for.
    """
    part = first_part(recorded, share)
    cycles = cycles_of(part)
    kind, texts = communication_texts(recorded)
    count = int((kind == texts.index(cycles.counted)).sum())
    return cycles, predict(part, cycles, count, level)
