"""Phases of applications that print the duration of each step in a format of their own."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from voxcast.records import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

LINE_CHARACTERS = 2000  # searched of each line: a log may contain a dumped array


def phases_from_log(text: str, patterns: Mapping[str, str]) -> tuple[Phase, ...]:
    """Read durations out of a log and place them end to end, in the order they were logged.

    Such lines give durations and no start times. Time between two steps is not seen, so that
    phases may be placed too early by as much.

    Parameters
    ----------
    text : str
        The log; lines that no pattern matches are skipped.
    patterns : mapping
        Phase to a regular expression with a group `seconds`, searched for in each line.

    Returns
    -------
    tuple of Phase
        Times in seconds from the start of the run; a phase logged twice appears twice. A
        match that is not a duration (text, NaN, a negative number) is skipped.

    Examples
    --------
    >>> log = "reading a.nii.gz\\n* affine time: 2.5 seconds\\n* warp time: 4 seconds"
    >>> line = r"{} time: (?P<seconds>\\S+) seconds"
    >>> phases = phases_from_log(log, {name: line.format(name) for name in ("affine", "warp")})
    >>> [(phase.name, phase.start_s, phase.end_s) for phase in phases]
    [('affine', 0.0, 2.5), ('warp', 2.5, 6.5)]
    """
    compiled = {name: re.compile(pattern) for name, pattern in patterns.items()}
    phases: list[Phase] = []
    start_s = 0.0
    for line in text.splitlines():
        short = line[:LINE_CHARACTERS]
        matches = [(m.start(), n, m) for n, p in compiled.items() if (m := p.search(short))]
        for _, name, match in sorted(matches, key=lambda entry: entry[:2]):
            duration_s = _seconds(match["seconds"])
            if duration_s is not None:
                phases.append(Phase(name, start_s, start_s + duration_s))
                start_s += duration_s
    return tuple(phases)


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
