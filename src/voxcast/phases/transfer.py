"""The time of a run on another machine, by a short run there and the signature of a long one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import RunError
from voxcast.phases.predict import LEVEL, cycle_times_s, cycles_of, error_of_sum_s
from voxcast.phases.signature import tick_times
from voxcast.phases.simo import DROPPED, communication_texts, phases_of

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace

# Less of the short run in the order of the long one, and it was another program.
MIN_ALIGNED_SHARE = 0.9


@dataclass(frozen=True)
class TransferredPhase:
    """A phase on both machines; times are of one tick.

    Attributes
    ----------
    passes : int
        Ticks of it in the short run. Where it has none, its time is that of the base, scaled as
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
        Time of the base by its own ticks at the places of those of the short run, as a share of
        what it took. Far from 1 the short run is no sample of the base, as where work grows.
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

    The interval is by batch means over the cycles of the short run, see
    `voxcast.phases.predict`. It reaches to where the time would be if the short run were as
    much off there as the same ticks of the base are for the base. It has nothing of what changes
    there after that run.

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
    # The base by its own ticks at these places: what those of the short run leave out of it.
    same_s = base_times.advance_s[place[is_aligned]]
    by_same_s = weight @ _phase_times_s(
        weight, base_sum, passes, np.bincount(at_base, same_s, n_phases)
    )
    base_by_same_ticks = float(by_same_s / base_sum.sum()) if by_same_s > 0 else 1.0
    cycles = cycles_of(run)
    cycle_s = cycle_times_s(run, cycles, run_times.advance_s)
    ticks_a_cycle = (cycles.stop_tick - cycles.first_tick) / cycles.repeated
    # As many ticks repeat in the base as it has beside those that the short run has only once.
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
    times_s: np.ndarray = np.where(has, mean_s, base_s * ratio)
    return times_s


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
