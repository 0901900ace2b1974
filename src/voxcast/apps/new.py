"""A new application: templates, the command line as arguments, its version, and its file.

Phases are proposed from one log. Three kinds of lines are recognised, in this order; the first
kind that occurs is proposed:

1. ``START name`` and ``END name`` (also BEGIN, FINISH, DONE; in any case), with or without a time
   in front; where no line ends a phase, at least two START lines, each up to the next;
2. a step with the seconds it took: ``name took 2.5 s``, ``name time: 2.5 seconds``,
   ``name: 2.5 sec``;
3. messages behind a time: a phase starts at each message after which a large share of the time
   passes.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voxcast.apps.phase_patterns import LINE_CHARACTERS, stamp_form, stamp_seconds, unwrapped
from voxcast.errors import ConfigError, RunError
from voxcast.files import write_text

TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_CPUS = re.compile(r"(?<!\{)\{cpus\}(?!\})")
VERSION_LIMIT_S = 120.0
_VERSION_CHARACTERS = 60
_ANOTHER = "give another --version-command"
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
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
class AppTemplate:
    """An application as its documentation describes it.

    Attributes
    ----------
    app : dict
        Values for ``conf/app``, without a container.
    sources : list of str
        Addresses of the documentation or code that the values come from.
    notes : list of str
        Remarks for the user.
    container, binds : dict
        Image by device, and binds, for running it in a container; empty without a container.
    container_program : str, optional
        Path of the program in the container, where it differs.
    version_command : str, optional
        Command that prints the version.
    """

    name: str
    description: str
    app: dict[str, Any]
    sources: list[str]
    notes: list[str]
    container: dict[str, str] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)
    container_program: str | None = None
    version_command: str | None = None

    def values(self, *, in_container: bool) -> dict[str, Any]:
        """Return the values for ``conf/app``.

        Raises
        ------
        ConfigError
            If it is to run in a container and has none.
        """
        if not in_container:
            return dict(self.app)
        if not self.container:
            then = "leave out --container, or write one into conf/app"
            raise ConfigError("names no container", self.name, then)
        program, *arguments = self.app["argv"]
        argv = [self.container_program or program, *arguments]
        return {**self.app, "argv": argv, "container": self.container, "binds": self.binds}


def template_names() -> list[str]:
    """Return the names of all templates."""
    return sorted(path.stem for path in TEMPLATES.glob("*.yaml"))


def load_template(name: str) -> AppTemplate:
    """Return a template.

    Raises
    ------
    ConfigError
        If the name is unknown.
    """
    if name not in template_names():
        then = f"choose from {', '.join(template_names())}"
        raise ConfigError("unknown template", name, then)
    import yaml

    content = yaml.safe_load((TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8"))
    return AppTemplate(name=name, **content)


def check_name(name: str) -> None:
    """Check that a name can be used as a file name and as a key.

    Raises
    ------
    ConfigError
        If it cannot.
    """
    if not _NAME.fullmatch(name):
        then = "use letters, digits and _, beginning with a letter"
        raise ConfigError("cannot be the name of an application", name, then)


def argv_of(command: str) -> list[str]:
    """Return a command line as arguments; ``{cpus}`` is another name of ``{threads}``.

    Raises
    ------
    ConfigError
        If it is empty, cannot be split, or needs a shell.

    Examples
    --------
    >>> argv_of("tool --in {image} 'a b' -j {cpus}")
    ['tool', '--in', '{image}', 'a b', '-j', '{threads}']
    """
    try:
        words = shlex.split(command)
    except ValueError:  # shlex knows this and a backslash at the end
        problem = f"a quotation mark is not closed, or a backslash is at its end: {command}"
        raise ConfigError(problem, "--command") from None
    if not words:
        raise ConfigError("is empty", "--command", "give e.g. 'tool {image} {out}'")
    shell = [word for word in words if word in ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1")]
    if shell:
        then = "put the command line in a script and name that"
        raise ConfigError(f"{shell[0]} needs a shell, and none is used", "--command", then)
    if "${" in command:
        then = "no shell expands it; give a value, or a --parameter"
        raise ConfigError("holds ${", "--command", then)
    return [_CPUS.sub("{threads}", word) for word in words]


def write_app(path: Path, name: str, values: dict[str, Any], comments: Iterable[str] = ()) -> None:
    """Write ``conf/app/NAME.yaml`` atomically, with the keys that differ from ``_base.yaml``."""
    short = {key: value for key, value in values.items() if key != "phase_patterns"}
    content = _yaml({name: short}, None)  # lists and mappings of plain values on one line
    if patterns := values.get("phase_patterns"):
        content += textwrap.indent(_yaml({"phase_patterns": patterns}, False), "  ")
    head = "".join(f"# {comment}\n" for comment in comments)
    write_text(path, f"{head}defaults:\n  - _base@{name}\n  - _self_\n{content}")


def _yaml(content: dict[str, Any], flow: bool | None) -> str:
    import yaml

    text: str = yaml.safe_dump(
        content, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=flow
    )
    return text


def printed_version(argv: Sequence[str]) -> str:
    """Return the first version number that a command prints, or its first line.

    Raises
    ------
    RunError
        If the command cannot be run, fails, or prints nothing. The output of a failed
        command is usually its usage.

    Examples
    --------
    >>> printed_version(["echo", "tool 7.4.1-beta (2023)"])
    '7.4.1-beta'
    """
    try:
        ended = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=VERSION_LIMIT_S,
        )  # fmt: skip
    except OSError as error:
        raise RunError(f"cannot be run ({error.strerror})", argv[0], _ANOTHER) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"did not end within {VERSION_LIMIT_S:.0f} s", argv[0], _ANOTHER) from None
    text = f"{ended.stdout}\n{ended.stderr}"
    lines = [line.strip()[:_VERSION_CHARACTERS] for line in text.splitlines() if line.strip()]
    if ended.returncode:
        first_line = f" ({lines[0]})" if lines else ""
        how = "exit status" if ended.returncode > 0 else "signal"
        ending = f"ended with {how} {abs(ended.returncode)}{first_line}, so its version is unknown"
        raise RunError(ending, " ".join(argv), _ANOTHER)
    if not lines:
        raise RunError("prints no version", " ".join(argv), _ANOTHER)
    number = _VERSION.search(text)
    return number[0] if number else lines[0]


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
