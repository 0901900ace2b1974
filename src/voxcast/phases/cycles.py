"""The part of a run that repeats itself, and how often it has done so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.communication_text import communication_texts
from voxcast.phases.simo import phases_of

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace

# Share of ticks that must communicate as those one cycle earlier. An operation that comes every
# ten ticks makes a cycle of ten; one in each epoch of fifty steps leaves the step as the cycle.
ALIKE = 0.85
# And of the ticks that would not be alike by chance (Cohen's kappa): where nearly all communicate
# in one way, any number of ticks later they do so again.
ALIKE_BEYOND_CHANCE = 0.5
FEW = 5  # cycles, of which neither a mean nor an interval says much
MAX_LENGTH_TICKS = 2000
MAX_COMPARED_TICKS = 20_000


@dataclass(frozen=True)
class Cycles:
    """What a run repeats.

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
    """Find what a run repeats.

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
    sums: np.ndarray = np.add.reduceat(complete_s, np.concatenate([[0], ends[:-1] + 1]))
    return sums


def _length(kind: np.ndarray) -> int | None:
    kind = kind[:MAX_COMPARED_TICKS]
    by_chance = float(np.sum((np.bincount(kind) / len(kind)) ** 2))
    enough = max(ALIKE, by_chance + ALIKE_BEYOND_CHANCE * (1 - by_chance))
    for lag in range(1, min(MAX_LENGTH_TICKS, len(kind) // 2) + 1):
        if float(np.mean(kind[lag:] == kind[:-lag])) >= (ALIKE if lag == 1 else enough):
            return lag
    return None
