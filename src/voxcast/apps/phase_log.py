"""Phases of an application, from lines of its log.

A program that follows our protocol prints ``voxcast-phase {"name": …, "start": …, "end": …,
"cpu_s": …}`` for each phase. Times are seconds of ``CLOCK_MONOTONIC``, which all processes of a
Linux system share, so that they can be related to the start of the run.

For a program with a format of its own, a phase has a regular expression, searched for in each
line. Its named groups say how the line is read:

``seconds``
    The line states how long the phase took, with ``hours`` and ``minutes`` if it has such groups.
    Such phases are placed end to end.
``start``, ``end``
    The phase starts, or ends, at this line. Without an ``end`` it lasts until the next phase
    starts. The time is read from the group ``time``, or without one from the text in front of the
    match, see `FORMS`; without any it is the time at which the profiler saw the line.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from voxcast.records import Phase

MARKER = "voxcast-phase "


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Log the block as the phase ``name``, even if it raises."""
    start, cpu_s = time.monotonic(), process_cpu_s()
    try:
        yield
    finally:
        write_phase(name, start, time.monotonic(), process_cpu_s() - cpu_s)


def started(name: str = "start") -> None:
    """Log the time since the process started (interpreter, imports) as the phase ``name``."""
    write_phase(name, process_start(), time.monotonic(), process_cpu_s())


def read_phases(log: str | Iterable[str], started_monotonic: float) -> tuple[Phase, ...]:
    """Read the phases out of a log, in the order they were logged.

    Parameters
    ----------
    log : str or iterable of str
        The text of the log, or its lines; other output and malformed lines are skipped.
    started_monotonic : float
        ``CLOCK_MONOTONIC`` when the run was started, in seconds.

    Returns
    -------
    tuple of Phase
        Times count from the start of the run; peak memory is not set.
    """
    lines = log.splitlines() if isinstance(log, str) else log
    events = (_read_line(line, started_monotonic) for line in lines)
    return tuple(phase for phase in events if phase is not None)


def _read_line(line: str, started_monotonic: float) -> Phase | None:
    # Native code may have left an unfinished line before ours, so the marker can be anywhere.
    _, marker, text = line.partition(MARKER)
    if not marker:
        return None
    try:
        content, _ = json.JSONDecoder().raw_decode(text)
        start_s, end_s = (float(content[n]) - started_monotonic for n in ("start", "end"))
        cpu_s, name = float(content["cpu_s"]), str(content["name"])
    except (ValueError, KeyError, TypeError):
        return None
    # The kernel rounds the start of a process to 10 ms: it may precede the start of the run.
    phase = Phase(name, max(0.0, start_s), end_s, cpu_s)
    is_finite = all(map(math.isfinite, (start_s, end_s, cpu_s)))
    return phase if is_finite and end_s >= phase.start_s else None


def write_phase(name: str, start: float, end: float, cpu_s: float) -> None:
    """Log a phase; `start` and `end` are seconds of ``CLOCK_MONOTONIC``."""
    content = {"name": name, "start": start, "end": end, "cpu_s": cpu_s}
    print(MARKER + json.dumps(content), flush=True)


def process_cpu_s() -> float:
    """Return the CPU seconds of this process, all threads, and of its terminated children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def process_start() -> float:
    """``CLOCK_MONOTONIC`` at the start of this process, to within a tick of the kernel."""
    # Field 22; field 2, the command's name, may contain spaces and brackets.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return since_boot_s - asleep_s


LINE_CHARACTERS = 2000  # searched of each line: a log may contain a dumped array
_CLOCK = r"(?P<h>\d\d):(?P<min>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Most specific first: a date with a clock contains a clock.
FORMS = (
    # 2024-05-01 12:00:00,123
    rf"(?P<y>\d{{4}})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T _-]{_CLOCK}",
    # 2024:05:01:12:00:00
    rf"(?P<y>\d{{4}}):(?P<m>\d\d):(?P<d>\d\d):{_CLOCK}",
    # 240501-12:00:00,123
    rf"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d)-{_CLOCK}",
    # Wed May  1 12:00:00 UTC 2024
    rf"(?P<m>{'|'.join(_MONTHS)}) +(?P<d>\d\d?) {_CLOCK}(?: [A-Z]{{2,5}})? (?P<y>\d{{4}})",
    rf"(?<![\d:]){_CLOCK}(?![\d:])",
)
DAY_S = 86400.0


class _Mark(NamedTuple):
    """A line at which a phase starts or ends; times are NaN where they are not known."""

    name: str
    starts: bool
    ends_itself: bool  # whether the pattern of the phase has an end
    written_s: float
    stamp_s: float


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
    seen_s = dict(enumerate(written_s or ()))
    marks: list[_Mark] = []
    phases: list[Phase] = []
    start_s = 0.0
    for number, name, match in _matches(lines, compiled):
        groups = match.groupdict()
        if "seconds" in groups:
            end_s = start_s + _duration_s(groups)
            if start_s <= end_s < math.inf:
                phases.append(Phase(name, start_s, end_s))
                start_s = end_s
        elif groups["start"] is not None or groups.get("end") is not None:
            stamp_s = stamp_seconds(groups.get("time", match.string[: match.start()]) or "")
            starts, seen = groups.get("end") is None, seen_s.get(number, math.nan)
            marks.append(_Mark(name, starts, "end" in groups, seen, stamp_s))
    phases += _between(marks, runtime_s or 0.0)
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


def _between(marks: Sequence[_Mark], runtime_s: float) -> Iterator[Phase]:
    """Yield the phases between marks."""
    stamps_s = unwrapped([mark.stamp_s for mark in marks])
    delays = [mark.written_s - stamp_s for mark, stamp_s in zip(marks, stamps_s, strict=True)]
    # The least delay; without a known one the first time in front of a line is 0.
    zeros = sorted(filter(_is_known, delays)) or [
        -stamp_s for stamp_s in filter(_is_known, stamps_s)
    ]
    timed = [
        (mark, max(0.0, stamp_s + zeros[0]) if _is_known(stamp_s) else mark.written_s)
        for mark, stamp_s in zip(marks, stamps_s, strict=True)
        if _is_known(stamp_s) or _is_known(mark.written_s)
    ]
    end_s = max((runtime_s, *(t_s for _, t_s in timed)))
    for position, (mark, start_s) in enumerate(timed):
        if mark.starts:
            ends = (
                t_s
                for other, t_s in timed[position + 1 :]
                if (other.name == mark.name if mark.ends_itself else other.starts)
            )
            yield Phase(mark.name, start_s, max(start_s, next(ends, end_s)))


def _is_known(seconds: float) -> bool:
    return not math.isnan(seconds)


def _duration_s(groups: Mapping[str, str | None]) -> float:
    """Return the seconds that a line states; NaN if it states none."""
    hours, minutes, seconds = (groups.get(unit, "0") for unit in ("hours", "minutes", "seconds"))
    try:
        return 3600 * float(hours or "") + 60 * float(minutes or "") + float(seconds or "")
    except ValueError:
        return math.nan


def stamp_seconds(text: str) -> float:
    """Return the first time in a text, in seconds since an arbitrary day; NaN without one.

    A clock without a date counts from midnight. What is no date or time of day, such as a month
    13, is skipped.

    Examples
    --------
    >>> stamp_seconds("240501-00:00:01,500") - stamp_seconds("[2024-04-30T23:59:59] fitting")
    2.5
    >>> stamp_seconds("no time")
    nan
    """
    for match in filter(None, (re.search(form, text) for form in FORMS)):
        fields = {"y": "1", "m": "1", "d": "1", **match.groupdict()}
        year, month = int(fields["y"]), fields["m"]
        year += 2000 if len(fields["y"]) == 2 else 0
        number = _MONTHS.index(month) + 1 if month in _MONTHS else int(month)
        day, hour, minute, second = (int(fields[name]) for name in ("d", "h", "min", "s"))
        with contextlib.suppress(ValueError):
            since = datetime(year, number, day, hour, minute, second) - datetime.min
            return since.total_seconds() + float(f"0.{fields['f'] or 0}")
    return math.nan


def unwrapped(seconds: Sequence[float]) -> list[float]:
    """Return times in order of writing with a day added at each midnight of a bare clock.

    Examples
    --------
    >>> unwrapped([86390.0, 5.0, 6.0])
    [86390.0, 86405.0, 86406.0]
    """
    days, previous, times = 0.0, -math.inf, []
    for clock_s in seconds:
        if clock_s + days < previous - DAY_S / 2:
            days += DAY_S
        times.append(clock_s + days)
        previous = previous if math.isnan(clock_s) else times[-1]
    return times
