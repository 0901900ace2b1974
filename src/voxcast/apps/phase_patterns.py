"""Phases of applications that log their steps in a format of their own.

A phase has a regular expression, searched for in each line of the log. Its named groups say how
the line is read:

``seconds``
    The line states how long the phase took, with ``hours`` and ``minutes`` if it has such groups.
    Such phases are placed end to end.
``start``, ``end``
    The phase starts, or ends, at this line. Without an ``end`` it lasts until the next phase
    starts. The time is read from the group ``time``, see `FORMS`; without such a
    group it is the time at which the profiler saw the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from voxcast.records import Phase

LINE_CHARACTERS = 2000  # searched of each line: a log may contain a dumped array
KINDS = ("seconds", "start")  # a pattern has the group of one kind
_CLOCK = r"(?P<h>\d\d):(?P<min>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Most specific first: a date with a clock contains a clock.
FORMS = {
    "2024-05-01 12:00:00,123": rf"(?P<y>\d{{4}})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T _-]{_CLOCK}",
    "2024:05:01:12:00:00": rf"(?P<y>\d{{4}}):(?P<m>\d\d):(?P<d>\d\d):{_CLOCK}",
    "240501-12:00:00,123": rf"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d)-{_CLOCK}",
    "Wed May  1 12:00:00 UTC 2024": (
        rf"(?:[A-Z][a-z]{{2}} )?(?P<m>{'|'.join(_MONTHS)}) +(?P<d>\d\d?) {_CLOCK}"
        r"(?: [A-Z]{2,5})? (?P<y>\d{4})"
    ),
    "12:00:00.123": rf"(?<![\d:]){_CLOCK}(?![\d:])",
}
_PATTERNS = [re.compile(form) for form in FORMS.values()]
_GROUP = re.compile(r"\?P<\w+>")
DAY_S = 86400.0


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
        End of the run, and of a phase without an end of its own.

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


def stamp_seconds(text: str) -> float | None:
    """Return the time that a text begins with, in seconds since an arbitrary day.

    A clock without a date counts from midnight.

    Examples
    --------
    >>> stamp_seconds("240501-00:00:01,500") - stamp_seconds("2024-04-30T23:59:59")
    2.5
    >>> stamp_seconds("00:01:01") is not None, stamp_seconds("no time") is None
    (True, True)
    """
    for pattern in _PATTERNS:
        match = pattern.match(text)
        if match is not None:
            return _stamp_seconds(match)
    return None


def stamp_form(line: str) -> tuple[str, int, int] | None:
    """Return the first time in a line: its form as a pattern without groups, start and end.

    Invalid dates and times of day, such as a month 13, are skipped.
    """
    for form, pattern in zip(FORMS.values(), _PATTERNS, strict=True):
        match = pattern.search(line)
        if match is not None and _stamp_seconds(match) is not None:
            return _GROUP.sub("?:", form), match.start(), match.end()
    return None


def unwrapped(seconds: list[float]) -> list[float]:
    """Return times in order of writing with a day added at each midnight of a bare clock.

    Examples
    --------
    >>> unwrapped([86390.0, 5.0, 6.0])
    [86390.0, 86405.0, 86406.0]
    """
    days, previous, times = 0.0, float("-inf"), []
    for clock_s in seconds:
        if clock_s + days < previous - DAY_S / 2:
            days += DAY_S
        times.append(clock_s + days)
        previous = times[-1]
    return times


def _stamp_seconds(match: re.Match[str]) -> float | None:
    fields = match.groupdict()
    hour, minute, second = (int(fields[name]) for name in ("h", "min", "s"))
    if hour > 23 or minute > 59 or second > 60:  # 60 is a leap second
        return None
    days = 0
    if "m" in fields:
        month, year = fields["m"], int(fields["y"])
        number = _MONTHS.index(month) + 1 if month in _MONTHS else int(month)
        try:
            days = date(year + 2000 if year < 100 else year, number, int(fields["d"])).toordinal()
        except ValueError:
            return None
    fraction_s = float(f"0.{fields['f'] or 0}")
    return days * DAY_S + 3600 * hour + 60 * minute + second + fraction_s
