"""Grouping of ticks by leader: a value that no phase is near founds the next phase."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

DROPPED = -1


@dataclass(frozen=True, eq=False)
class Grouping:
    """Phases of a run and the phase of each tick.

    Attributes
    ----------
    label : ndarray of int, shape (ticks,)
        Index of the tick's phase, in the order of founding; -1 in ticks of dropped phases.
    founder : ndarray, shape (phases,)
        The value that founded each phase.
    first_tick : ndarray of int, shape (phases,)
        The tick that founded each phase.
    weight : ndarray of int, shape (phases,)
        Number of ticks.
    share : ndarray of float, shape (phases,)
        Share of the run, 0 to 1.
    dropped_phases : int
        Number of phases with less than the least share.
    dropped_share : float
        Their share of the run together.
    """

    label: np.ndarray
    founder: np.ndarray
    first_tick: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    dropped_phases: int
    dropped_share: float

    def ticks(self) -> list[np.ndarray]:
        """Return the ticks of each phase, ascending."""
        by_label = np.argsort(self.label, kind="stable")
        ends = np.cumsum(np.bincount(self.label - DROPPED, minlength=len(self.founder) + 1))
        return np.split(by_label, ends)[1:-1]


def grouped(
    values: np.ndarray,
    tolerance: float = 0,
    *,
    communication: np.ndarray | None = None,
    duration: np.ndarray | None = None,
    min_share: float = 0.0,
) -> Grouping:
    """Group ticks whose values lie near the value that founded their phase.

    Ticks are taken in order. A tick joins the earliest founded phase whose founder differs by at
    most ``tolerance`` and communicates alike; if there is none, it founds a phase. This is the
    leader algorithm (Hartigan, Clustering Algorithms, 1975, chapter 3), in one pass; its result
    depends on the order, and two ticks of a phase may differ by twice the tolerance.

    Parameters
    ----------
    values : ndarray of int or float, shape (ticks,)
        For example SIMO. Time grows with the number of different values, and hardly with that of
        ticks.
    tolerance : float
        In the unit of the values.
    communication : ndarray of int, shape (ticks,), optional
        Kind of communication of each tick; only equal ones are grouped.
    duration : ndarray, shape (ticks,), optional
        What the share of a phase is counted in; ticks if omitted.
    min_share : float
        Phases with a smaller share of the run are dropped.

    Raises
    ------
    ValueError
        If a value is not finite, or the tolerance or the least share is out of range.

    Examples
    --------
    >>> phases = grouped(np.array([50, 51, 47, 46, 45, 47]), tolerance=1)
    >>> phases.founder, phases.weight
    (array([50, 47, 45]), array([2, 3, 1]))
    """
    import pandas as pd

    if not (0 <= tolerance < np.inf and 0 <= min_share <= 1):
        raise ValueError(f"tolerance {tolerance} or share {min_share} out of range")
    if not np.all(np.isfinite(values)):
        raise ValueError("values must be finite")
    # All ticks of one value and communication have one founder, that of the first of them: a
    # founder that fits then is the earliest for ever. So only different values are compared.
    codes, distinct = pd.factorize(values)
    if communication is None:
        kinds = np.zeros(len(distinct), dtype=np.int64)
    else:
        kind_codes, kind_names = pd.factorize(communication)
        codes, pairs = pd.factorize(codes * len(kind_names) + kind_codes)
        distinct, kinds = distinct[pairs // len(kind_names)], pairs % len(kind_names)
    phase, founding = _founders(distinct, kinds, tolerance)
    label = phase[codes]
    first_tick = _first_ticks(label, len(founding))
    weight = np.bincount(label, minlength=len(founding))
    total = weight if duration is None else np.bincount(label, duration, len(founding))
    share = total / max(total.sum(), np.finfo(float).tiny)
    stays = share >= min_share
    renumbered = np.where(stays, np.cumsum(stays) - 1, DROPPED)
    return Grouping(
        renumbered[label] if len(label) else label,
        distinct[founding][stays],
        first_tick[stays],
        weight[stays],
        share[stays],
        int((~stays).sum()),
        float(share[~stays].sum()),
    )


def _first_ticks(label: np.ndarray, n_phases: int) -> np.ndarray:
    first = np.zeros(n_phases, dtype=np.int64)
    first[label[::-1]] = np.arange(len(label) - 1, -1, -1)  # of several writes the last holds
    return first


def _founders(
    distinct: np.ndarray, kinds: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the phase of each different value, and the values that founded the phases."""
    if tolerance == 0:
        every = np.arange(len(distinct))
        return every, every
    phase = np.empty(len(distinct), dtype=np.int64)
    founding: list[int] = []
    # Of each kind the founders so far, sorted, with their phases. They are more than the
    # tolerance apart, so that at most two lie near a value.
    sorted_founders: dict[int, tuple[list[float], list[int]]] = {}
    for n, (value, kind) in enumerate(zip(distinct.tolist(), kinds.tolist(), strict=True)):
        founders, phases = sorted_founders.setdefault(kind, ([], []))
        start = bisect.bisect_left(founders, value - tolerance)
        stop = bisect.bisect_right(founders, value + tolerance)
        if start < stop:
            phase[n] = min(phases[start:stop])
        else:
            phase[n] = len(founding)
            founders.insert(start, value)
            phases.insert(start, len(founding))
            founding.append(n)
    return phase, np.array(founding, dtype=np.int64)
