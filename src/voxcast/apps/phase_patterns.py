"""Phases of applications that log their steps in a format of their own.

A phase has a regular expression, searched for in each line of the log. Its named groups say what
the line tells:

``seconds``
    The line states how long the phase took, with ``hours`` and ``minutes`` if it has such groups.
    Such phases are placed end to end.
``start``, ``end``
    The phase starts, or ends, at this line. Without an ``end`` it lasts until the next phase
    starts. The time is that of the group ``time``, see `voxcast.apps.timestamps`; without such a
    group it is the time at which the line was written, as seen by the profiler.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.apps.timestamps import stamp_seconds, unwrapped
from voxcast.records import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LINE_CHARACTERS = 2000  # searched of each line: a log may contain a dumped array
KINDS = ("seconds", "start")  # a pattern has the group of one kind


@dataclass(frozen=True)
class _Mark:
    """A line at which a phase starts or ends."""

    name: str
    starts: bool
    ends_itself: bool  # whether the pattern of the phase has an end
    line: int
    stamp_s: float | None


def phases_from_log(
    text: str | Sequence[str],
    patterns: Mapping[str, str],
    written_s: Sequence[float] | None = None,
    runtime_s: float | None = None,
) -> tuple[Phase, ...]:
    """Read phases out of a log, in the order in which they start.

    Parameters
    ----------
    text : str or sequence of str
        The log, or its lines; lines that no pattern matches are skipped.
    patterns : mapping
        Phase to a regular expression, see the module.
    written_s : sequence of float, optional
        Seconds from the start of the run at which each line was written.
    runtime_s : float, optional
        End of the run: that of a phase that has no other.

    Returns
    -------
    tuple of Phase
        Times in seconds from the start of the run; a phase logged twice appears twice. A
        match that is not a duration (text, NaN, a negative number) is skipped.

    Notes
    -----
    Stated durations have no start times. Time between two steps is not seen, so that phases may be
    placed too early by as much. Times in front of lines are related to the run by the line that
    was written with the least delay; without `written_s` the first of them is 0.

    Examples
    --------
    >>> log = "reading a.nii.gz\\n* affine time: 2.5 seconds\\n* warp time: 4 seconds"
    >>> line = r"{} time: (?P<seconds>\\S+) seconds"
    >>> phases = phases_from_log(log, {name: line.format(name) for name in ("affine", "warp")})
    >>> [(phase.name, phase.start_s, phase.end_s) for phase in phases]
    [('affine', 0.0, 2.5), ('warp', 2.5, 6.5)]
    >>> log = "12:00:00 START fit\\n12:00:09 END fit"
    >>> phases_from_log(log, {"fit": r"(?P<time>\\S+) (?:(?P<start>START)|(?P<end>END)) fit"})
    (Phase(name='fit', start_s=0.0, end_s=9.0, cpu_s=None, peak_rss_bytes=None),)
    """
    lines = text.splitlines() if isinstance(text, str) else text
    compiled = {name: re.compile(pattern) for name, pattern in patterns.items()}
    marks: list[_Mark] = []
    phases: list[Phase] = []
    start_s = 0.0
    for number, name, match in _matches(lines, compiled):
        groups = match.re.groupindex
        if "seconds" in groups:
            duration_s = _duration_s(match)
            if duration_s is not None:
                phases.append(Phase(name, start_s, start_s + duration_s))
                start_s += duration_s
            continue
        stamp_s = stamp_seconds(match["time"] or "") if "time" in groups else None
        ends = "end" in groups and match["end"] is not None
        if ends or match["start"] is not None:
            marks.append(_Mark(name, not ends, "end" in groups, number, stamp_s))
    phases += _between(marks, _times(marks, written_s), runtime_s)
    return tuple(sorted(phases, key=lambda phase: phase.start_s))


def _matches(
    lines: Sequence[str], compiled: Mapping[str, re.Pattern[str]]
) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield line number, phase and match, in the order of the log."""
    for number, line in enumerate(lines):
        short = line[:LINE_CHARACTERS]
        matches = [(m.start(), n, m) for n, p in compiled.items() if (m := p.search(short))]
        for _, name, match in sorted(matches, key=lambda entry: entry[:2]):
            yield number, name, match


def _times(marks: Sequence[_Mark], written_s: Sequence[float] | None) -> list[float | None]:
    """Return the seconds of each mark from the start of the run; None where they are not known."""
    stamps = unwrapped([mark.stamp_s for mark in marks if mark.stamp_s is not None])
    written = [
        None if written_s is None or mark.line >= len(written_s) else written_s[mark.line]
        for mark in marks
    ]
    if not stamps:
        return list(written)
    stamped = iter(stamps)
    clock = [None if mark.stamp_s is None else next(stamped) for mark in marks]
    delays = [
        w - c for w, c in zip(written, clock, strict=True) if w is not None and c is not None
    ]
    zero_s = min(delays, default=-stamps[0])
    return [w if c is None else max(0.0, c + zero_s) for w, c in zip(written, clock, strict=True)]


def _between(
    marks: Sequence[_Mark], times: Sequence[float | None], runtime_s: float | None
) -> Iterator[Phase]:
    timed = [(mark, t_s) for mark, t_s in zip(marks, times, strict=True) if t_s is not None]
    last_s = max((t_s for _, t_s in timed), default=0.0)
    end_s = last_s if runtime_s is None else max(runtime_s, last_s)
    for position, (mark, start_s) in enumerate(timed):
        if not mark.starts:
            continue
        later = timed[position + 1 :]
        ends = (
            (t_s for other, t_s in later if other.name == mark.name)
            if mark.ends_itself
            else (t_s for other, t_s in later if other.starts)
        )
        yield Phase(mark.name, start_s, max(start_s, next(ends, end_s)))


def _duration_s(match: re.Match[str]) -> float | None:
    groups = match.groupdict()
    parts = [(3600, groups.get("hours", "0")), (60, groups.get("minutes", "0"))]
    numbers = [(factor, _seconds(text)) for factor, text in (*parts, (1, groups["seconds"]))]
    if any(number is None for _, number in numbers):
        return None
    return sum(factor * number for factor, number in numbers if number is not None)


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
