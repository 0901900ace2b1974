"""The time of a run from its first cycles, or from a short run on another machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.signature import (
    DROPPED,
    before_tick,
    communication_texts,
    phases_of,
    tick_times,
)
from voxcast.quantities import format_short_seconds

if TYPE_CHECKING:
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
    elapsed_s: float
    cycle_s: float
    cycles: float
    cycles_of_run: float
    trend: CycleTrend | None = None


def predict(
    trace: LogicalTrace, cycles: Cycles, cycles_of_run: float, level: float = LEVEL
) -> TimePrediction:
    """Return the time of a run from a trace of its first cycles.

    It is the time so far, and for each cycle to come the mean of the repeating part. What went
    before that part, such as start and loading, is not extrapolated; the end of the program,
    after its last cycle, is not in it.

    The interval is by means of batches of cycles, see `error_of_sum_s`. A trend in their times,
    see `trend_of`, is not continued, since its end is unknown; then the prediction has no
    interval. Changes slower than the trace, such as a neighbour on the machine who comes later,
    are not in it.

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
        elapsed_s, cycle_s, cycles.count, cycles_of_run, trend,
    )  # fmt: skip


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
        Share of the ticks to predict from. The number of cycles of the run is taken as given, like
        a stated number of iterations.
    """
    part = first_part(recorded, share)
    cycles = cycles_of(part)
    kind, texts = communication_texts(recorded)
    count = int((kind == texts.index(cycles.counted)).sum())
    return cycles, predict(part, cycles, count, level)


# Share of ticks that must communicate as those one cycle earlier. An operation that comes every
# ten ticks makes a cycle of ten; one in each epoch of fifty steps leaves the step as the cycle.
ALIKE = 0.85
# And of the ticks that would not be alike by chance (Cohen's kappa): where nearly all communicate
# in one way, any number of ticks later they do so again.
ALIKE_BEYOND_CHANCE = 0.5
FEW = 5  # cycles, too few for a mean or an interval
MAX_LENGTH_TICKS = 2000
MAX_COMPARED_TICKS = 20_000


@dataclass(frozen=True)
class Cycles:
    """The repeating part of a run.

    Attributes
    ----------
    first_tick, stop_tick : int
        The repeating part: from the first tick of a phase that recurs to the one after the last.
    length_ticks : int
        Ticks of a cycle.
    counted : str
        The communication whose ticks are counted as cycles.
    count : int
        Cycles in the trace, with those before the repeating part: the first pass of a loop is
        often in a phase of its own, since it has the start of the program in it.
    repeated : int
        Cycles in the repeating part.
    """

    first_tick: int
    stop_tick: int
    length_ticks: int
    counted: str
    count: int
    repeated: int


def cycles_of(trace: LogicalTrace) -> Cycles:
    """Find the repeating part of a run.

    A phase recurs if it has ticks in both halves of the trace. The cycle is the least number of
    ticks after which the run communicates as before, in nearly all of its ticks. Cycles are
    counted by the communication that is nearest to one tick a cycle. Where no number of ticks is
    such, or the cycles are few, as in a part with few epochs, the most frequent communication is
    counted.

    Raises
    ------
    RunError
        If no phase recurs.
    """
    grouping = phases_of(trace)
    middle = len(trace) / 2
    last_tick = [int(ticks[-1]) for ticks in grouping.ticks()]
    spans = [
        (first, last + 1)
        for first, last in zip(grouping.first_tick.tolist(), last_tick, strict=True)
        if first < middle <= last
    ]
    if not spans:
        raise RunError(
            f"no phase recurs in its {len(trace)} ticks", trace.events.source,
            "trace more of the run: some repetitions of its loop",
        )  # fmt: skip
    start, stop = min(first for first, _ in spans), max(last for _, last in spans)
    kind, texts = communication_texts(trace)
    in_part = np.bincount(kind[start:stop], minlength=len(texts))
    length = _length(kind[start:stop])
    if length is None or stop - start < FEW * length:
        length = round((stop - start) / in_part.max())
    a_cycle = in_part * length / (stop - start)
    counted = int(np.argmin(np.where(in_part > 1, np.abs(a_cycle - 1.0), np.inf)))
    return Cycles(
        start, stop, length, texts[counted],
        int((kind == counted).sum()), int(in_part[counted]),
    )  # fmt: skip


def cycle_times_s(trace: LogicalTrace, cycles: Cycles, times_s: np.ndarray) -> np.ndarray:
    """Return the sum of the times of the ticks of each cycle of the repeating part.

    Parameters
    ----------
    trace : LogicalTrace
        The trace.
    cycles : Cycles
        Of the trace.
    times_s : ndarray, shape (ticks,)
        Of its ticks.

    Returns
    -------
    ndarray, shape (cycles,)
        A cycle ends with the tick that is counted; what follows the last one is left out.
    """
    kind, texts = communication_texts(trace)
    part = slice(cycles.first_tick, cycles.stop_tick)
    ends = np.flatnonzero(kind[part] == texts.index(cycles.counted))
    complete_s = times_s[part][: ends[-1] + 1]
    return np.add.reduceat(complete_s, np.concatenate([[0], ends[:-1] + 1]))


def _length(kind: np.ndarray) -> int | None:
    kind = kind[:MAX_COMPARED_TICKS]
    by_chance = float(np.sum((np.bincount(kind) / len(kind)) ** 2))
    enough = max(ALIKE, by_chance + ALIKE_BEYOND_CHANCE * (1 - by_chance))
    for lag in range(1, min(MAX_LENGTH_TICKS, len(kind) // 2) + 1):
        if float(np.mean(kind[lag:] == kind[:-lag])) >= (ALIKE if lag == 1 else enough):
            return lag
    return None


MAX_BATCHES = 10
MIN_BATCHES = 3
MIN_TREND_BATCHES = 5  # 4 means are in no order unlikely enough
SIGNIFICANCE = 0.05
LAST = 3  # batches after a sudden change


@dataclass(frozen=True)
class CycleTrend:
    """A trend in the times of cycles.

    Attributes
    ----------
    first_s, last_s : float
        Mean time of a cycle in the first and in the last third of them.
    """

    first_s: float
    last_s: float

    def __str__(self) -> str:
        """Say what becomes of the cycles."""
        become = "longer" if self.last_s > self.first_s else "shorter"
        first, last = format_short_seconds(self.first_s), format_short_seconds(self.last_s)
        return f"cycles get {become}, from {first} in their first third to {last} in their last"


def trend_of(cycle_s: np.ndarray) -> CycleTrend | None:
    """Return the trend in the times of successive cycles, or None if none is seen.

    By the Mann-Kendall test at 5 % on the means of up to ten batches (Mann 1945; Kendall 1975), or
    if the last three of ten are all longer, or all shorter, than any before, as after a sudden
    change; the chance of this is 1 in 60. Both take the means for independent. Slow noise of a
    machine is taken for a trend more often than that: it looks like one, and nothing in the run
    distinguishes the two.

    Parameters
    ----------
    cycle_s : ndarray, shape (cycles,)
        Times of cycles. In fewer than five no trend is seen.
    """
    from scipy import stats

    if len(cycle_s) < MIN_TREND_BATCHES:
        return None
    batches = np.array_split(cycle_s, min(MAX_BATCHES, len(cycle_s)))
    # Times are kept in nanoseconds: equal cycles may differ in the last bits of their sums.
    means_s = np.round([batch.mean() for batch in batches], 9)
    kendall = stats.kendalltau(np.arange(len(means_s)), means_s)
    if not (kendall.pvalue < SIGNIFICANCE or _ends_apart(means_s)):
        return None
    thirds = np.array_split(cycle_s, 3)
    return CycleTrend(float(thirds[0].mean()), float(thirds[-1].mean()))


def _ends_apart(means_s: np.ndarray) -> bool:
    before, last = means_s[:-LAST], means_s[-LAST:]
    return len(means_s) == MAX_BATCHES and (
        bool(last.min() > before.max()) or bool(last.max() < before.min())
    )


def error_of_sum_s(passed_s: np.ndarray, ahead: float, level: float) -> float:
    """Return the half width of an interval for the sum of the next times.

    Times of successive cycles depend on each other, since a machine has fast and slow minutes;
    so the variance comes from the means of batches of them (Law & Kelton, Simulation
    Modeling and Analysis, section 9.5.3). That method takes the batches for independent: the error
    of a sum of m times then has a variance of s² m (m + n) / b, for b batches of the n times
    passed with the standard deviation s between their means. The noise of a machine is not of that
    kind. Its slow part is as strong between long batches as between short ones, as in 1/f noise,
    and the rest of the run averages no more of it out than a batch did. So the mean of the times
    to come is taken for the mean of one more batch: the variance is s² m² (1 + 1/b).

    Parameters
    ----------
    passed_s : ndarray, shape (n,)
        Times of successive cycles. Batches are about the square root of their number, 3 to 10;
        of fewer than 3 the half width is infinite. Ticks would not do: their number may differ
        from cycle to cycle, like inner iterations until something converges.
    ahead : float
        Number of cycles to come, m.
    level : float
        Probability that the sum is in the interval, by Student's t.
    """
    from scipy import stats

    if ahead <= 0:
        return 0.0
    batches = min(MAX_BATCHES, max(MIN_BATCHES, math.isqrt(len(passed_s))))
    if len(passed_s) < batches:
        return math.inf
    means_s = [batch.mean() for batch in np.array_split(passed_s, batches)]
    quantile = float(stats.t.ppf((1 + level) / 2, batches - 1))
    return float(quantile * np.std(means_s, ddof=1) * ahead * math.sqrt(1 + 1 / batches))


# Less of the short run in the order of the long one, and it was another program.
MIN_ALIGNED_SHARE = 0.9


@dataclass(frozen=True)
class TransferredPhase:
    """A phase on both machines; times are of one tick.

    Attributes
    ----------
    passes : int
        Ticks of it in the short run. Without any, its time is its time in the base, scaled as
        all phases together.
    """

    communication: str
    weight: int
    base_s: float
    passes: int
    time_s: float


@dataclass(frozen=True)
class Transfer:
    """A run as it would be on another machine.

    Attributes
    ----------
    phases : tuple of TransferredPhase
        The last stands for the dropped phases of the base, where there are any.
    total_s, lower_s, upper_s : float
        Predicted time there, and the interval at `level`.
    base_elapsed_s, run_elapsed_s : float
        Of the run on record and of the short one.
    aligned_share : float
        Share of the ticks of the short run that are ticks of the base.
    base_by_same_ticks : float
        Time of the base computed from its own ticks at the places of the short run, as a share
        of its elapsed time. Far from 1 the short run does not represent the base, as where work
        grows.
    """

    phases: tuple[TransferredPhase, ...]
    total_s: float
    lower_s: float
    upper_s: float
    level: float
    base_elapsed_s: float
    run_elapsed_s: float
    aligned_share: float
    base_by_same_ticks: float


def transfer(base: LogicalTrace, run: LogicalTrace, level: float = LEVEL) -> Transfer:
    """Return the time that the run of ``base`` would take where ``run`` was made.

    The order of the events of a program does not depend on the machine, so that a tick of the
    short run is the tick of the base at its place, as long as both communicate alike: from the
    start, and from the end for what follows the last cycle. Each phase of the base gets the mean
    time of its ticks in the short run; the sum of time times weight is the run there. Phases need
    no recognition by their amount of computation, which a clock on another machine would change.

    The interval is by batch means over the cycles of the short run, see `error_of_sum_s`. It
    reaches to where the time would be if the short run were as
    much off there as the same ticks of the base are for the base. Changes there after that
    run are not in it.

    Raises
    ------
    RunError
        If the short run has other processes or another order of communication.
    """
    if len(base.events.processes) != len(run.events.processes):
        raise RunError(
            f"has {len(run.events.processes)} processes, the base "
            f"{len(base.events.processes)}", run.events.source, "run it on as many",
        )  # fmt: skip
    place = aligned_ticks(base, run)
    is_aligned = place >= 0
    share = float(is_aligned.mean()) if len(place) else 0.0
    if share < MIN_ALIGNED_SHARE:
        then = "change nothing but the iterations; an order by chance cannot be transferred"
        if len(run) > len(base):
            then = f"exchange it with {base.events.source}: the base is the longer run"
        raise RunError(
            f"only {share:.0%} of its ticks communicate as those of the base",
            run.events.source, then,
        )  # fmt: skip
    grouping = phases_of(base)
    base_times, run_times = tick_times(base), tick_times(run)
    label = np.where(grouping.label == DROPPED, len(grouping.founder), grouping.label)
    n_phases = len(grouping.founder) + int(grouping.dropped_phases > 0)
    weight = np.bincount(label, minlength=n_phases)
    base_sum = np.bincount(label, base_times.advance_s, n_phases)
    at_base = label[place[is_aligned]]
    passes = np.bincount(at_base, minlength=n_phases)
    there_s = run_times.advance_s[is_aligned]
    time_s = _phase_times_s(weight, base_sum, passes, np.bincount(at_base, there_s, n_phases))
    total_s = float(weight @ time_s) + run_times.after_s
    # The base by its own ticks at these places shows how much the short run leaves out.
    same_s = base_times.advance_s[place[is_aligned]]
    by_same_s = weight @ _phase_times_s(
        weight, base_sum, passes, np.bincount(at_base, same_s, n_phases)
    )
    base_by_same_ticks = float(by_same_s / base_sum.sum()) if by_same_s > 0 else 1.0
    cycles = cycles_of(run)
    cycle_s = cycle_times_s(run, cycles, run_times.advance_s)
    ticks_a_cycle = (cycles.stop_tick - cycles.first_tick) / cycles.repeated
    # All ticks repeat in the base except the ones that the short run has only once.
    ahead = (len(base) - len(run)) / ticks_a_cycle + cycles.repeated
    error_s = error_of_sum_s(cycle_s, ahead, level)
    unlike = 1 / base_by_same_ticks
    base_s = base_sum / weight
    kind, texts = communication_texts(base)
    names = [texts[kind[first]] for first in grouping.first_tick] + ["dropped phases"]
    return Transfer(
        tuple(
            TransferredPhase(name, int(w), float(b), int(p), float(t))
            for name, w, b, p, t in zip(names, weight, base_s, passes, time_s, strict=False)
        ),
        total_s, max(0.0, total_s - error_s) * min(1.0, unlike),
        (total_s + error_s) * max(1.0, unlike), level,
        base_times.elapsed_s, run_times.elapsed_s, share, base_by_same_ticks,
    )  # fmt: skip


def _phase_times_s(
    weight: np.ndarray, base_sum: np.ndarray, passes: np.ndarray, sums: np.ndarray
) -> np.ndarray:
    """Return the mean time of each phase in some passes; of those without any, scaled."""
    base_s, mean_s = base_sum / weight, sums / np.maximum(passes, 1)
    has = passes > 0
    # The ratio to the base is by the phases that both have, each as often as in the base.
    ratio = float((weight * mean_s)[has].sum() / max(base_sum[has].sum(), np.finfo(float).tiny))
    return np.where(has, mean_s, base_s * ratio)


def aligned_ticks(base: LogicalTrace, run: LogicalTrace) -> np.ndarray:
    """Return for each tick of a run the tick of the base that it is, -1 for none; shape (ticks,).

    From the start as long as the communication is equal, and for the rest from the end.
    """
    kind, texts = communication_texts(base)
    run_kind, run_texts = communication_texts(run)
    number = {text: n for n, text in enumerate(texts)}
    in_base = np.array([number.get(text, -1) for text in run_texts], dtype=np.int64)[run_kind]
    shorter = min(len(kind), len(in_base))
    ahead = _equal_at_start(kind[:shorter], in_base[:shorter])
    behind = _equal_at_start(kind[::-1][:shorter], in_base[::-1][:shorter])
    place = np.full(len(in_base), -1, dtype=np.int64)
    place[len(place) - behind :] = np.arange(len(kind) - behind, len(kind))
    place[:ahead] = np.arange(ahead)
    return place


def _equal_at_start(left: np.ndarray, right: np.ndarray) -> int:
    differ = np.flatnonzero(left != right)
    return int(differ[0]) if len(differ) else len(left)
