"""Phases proposed from one log of an application, as patterns for ``conf/app``.

Three kinds of lines are recognised, in this order; the first kind that occurs is proposed:

1. ``START name`` and ``END name`` (also BEGIN, FINISH, DONE; in any case), with or without a time
   in front; where no line ends a phase, at least two START lines, each up to the next;
2. a step with the seconds it took: ``name took 2.5 s``, ``name time: 2.5 seconds``,
   ``name: 2.5 sec``;
3. messages behind a time: a phase starts at each message after which a large share of the time
   passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxcast.apps.phase_patterns import LINE_CHARACTERS
from voxcast.apps.timestamps import stamp_form, stamp_seconds, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

START_END, STATED_SECONDS, TIME_STAMPS = "START/END lines", "stated seconds", "times of messages"
MIN_SHARE = 0.05  # of the logged time: a message that is followed by less starts no phase
MAX_PHASES = 20
MIN_WORD = 3  # letters of a message by which it is recognised again

_WORDS = r"[A-Za-z][\w.+-]*(?: [A-Za-z][\w.+-]*){0,5}"
_START = re.compile(rf"\b(?P<word>start|begin)(?:ed|ing|s)?:?\s+(?P<name>{_WORDS})", re.IGNORECASE)
_END_WORDS = "end|finish|done"
_END = re.compile(rf"\b(?P<word>{_END_WORDS})(?:ed|ing|s)?:?\s+(?P<name>{_WORDS})", re.IGNORECASE)
_STATED = re.compile(
    rf"(?P<name>{_WORDS})(?P<between> ?(?:time|took|takes|in|finished in|done in)?[:=]? *)"
    r"(?P<seconds>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?) ?(?P<unit>seconds|secs?|s)\b"
)
_TIME_WORDS = re.compile(r"(?: (?:time|took|takes|finished|done|completed|in))+$")


@dataclass(frozen=True)
class PhaseProposal:
    """Patterns by phase, in the order of the log, and the kind of lines; empty if none is seen."""

    kind: str = ""
    patterns: dict[str, str] = field(default_factory=dict)


def propose_phases(lines: Sequence[str]) -> PhaseProposal:
    """Return the phases that a log shows by lines of a documented kind.

    Examples
    --------
    >>> propose_phases(["START fit", "working", "END fit"]).patterns
    {'fit': '\\\\b(?:(?P<start>START)|(?P<end>END)) fit\\\\s*$'}
    >>> propose_phases(["START fit", "START save"]).patterns["fit"]
    '\\\\b(?P<start>START) fit\\\\s*$'
    >>> propose_phases(["warp took 2.5 s"]).patterns
    {'warp': '\\\\bwarp took (?P<seconds>\\\\S+) s\\\\b'}
    """
    short = [line[:LINE_CHARACTERS] for line in lines]
    for kind, propose in (
        (START_END, _start_and_end),
        (STATED_SECONDS, _stated),
        (TIME_STAMPS, _stamped),
    ):
        patterns = propose(short)
        if patterns and len(patterns) <= MAX_PHASES:
            return PhaseProposal(kind, patterns)
    return PhaseProposal()


def phase_name(text: str) -> str:
    """Return a text as the name of a phase: lower case, words joined by ``_``.

    Examples
    --------
    >>> phase_name("Bias correction (N4)")
    'bias_correction_n4'
    """
    return re.sub(r"\W+", "_", text.strip().lower()).strip("_") or "phase"


def _start_and_end(lines: Sequence[str]) -> dict[str, str]:
    starts = list(_searched(_START, lines))
    names = {match["name"].lower() for _, match in starts}
    ends = {match["name"].lower(): match for _, match in _searched(_END, lines)}
    some_end = bool(names & ends.keys())
    patterns: dict[str, str] = {}
    for line, match in starts:
        ended = ends.get(match["name"].lower())
        if some_end and ended is None:
            continue
        limits = rf"(?P<start>{_spelt(match['word'], match)})"
        if ended is not None:
            limits = rf"(?:{limits}|(?P<end>{_spelt(ended['word'], ended)}))"
        stamp = stamp_form(line[: match.start()])
        time = "" if stamp is None else rf"(?P<time>{stamp[0]}).*?"
        pattern = rf"{time}\b{limits} {_escaped(match['name'])}\s*$"
        patterns.setdefault(phase_name(match["name"]), pattern)
    return patterns if some_end or len(patterns) > 1 else {}


def _spelt(word: str, match: re.Match[str]) -> str:
    """Return a word as it is written in its line, with its ending and colon."""
    text = match[0][: len(match[0]) - len(match["name"])].strip()
    return _escaped(text or word)


def _stated(lines: Sequence[str]) -> dict[str, str]:
    patterns: dict[str, str] = {}
    for _, match in _searched(_STATED, lines):
        name = _TIME_WORDS.sub("", match["name"])
        if len(name) < MIN_WORD:
            continue
        stated = _escaped(match["name"] + match["between"])
        gap = " " if match[0][match.end("seconds") - match.start()] == " " else ""
        patterns.setdefault(phase_name(name), rf"\b{stated}(?P<seconds>\S+){gap}{match['unit']}\b")
    return patterns


def _stamped(lines: Sequence[str]) -> dict[str, str]:
    stamped = [(stamp, line) for line in lines if (stamp := stamp_form(line)) is not None]
    times = unwrapped([stamp_seconds(line[start:end]) or 0.0 for (_, start, end), line in stamped])
    total_s = times[-1] - times[0] if times else 0.0
    if total_s <= 0:
        return {}
    patterns: dict[str, str] = {}
    for (stamp, line), t_s, next_s in zip(stamped, times, [*times[1:], times[-1]], strict=True):
        message = _message(line[stamp[2] :])
        if next_s - t_s >= MIN_SHARE * total_s and len(message) >= MIN_WORD:
            pattern = rf"(?P<time>{stamp[0]}).*?(?P<start>{_escaped(message)})"
            patterns.setdefault(phase_name(message), pattern)
    return patterns if len(patterns) > 1 else {}


def _message(text: str) -> str:
    """Return the first words of a message that are the same in every run: no number, no path."""
    match = re.search(r"[A-Za-z][A-Za-z_-]*(?: [A-Za-z][A-Za-z_-]*){0,4}(?![\w/.])", text)
    return "" if match is None else match[0]


def _escaped(text: str) -> str:
    return re.escape(text).replace("\\ ", " ")


def _searched(
    pattern: re.Pattern[str], lines: Sequence[str]
) -> Iterator[tuple[str, re.Match[str]]]:
    for line in lines:
        match = pattern.search(line)
        if match is not None:
            yield line, match
