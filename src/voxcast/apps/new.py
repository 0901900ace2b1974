"""A new application: templates, the command line as arguments, its version, and its file.

Phases are proposed from one log. Two kinds of lines are recognised; the first kind that occurs is
proposed:

1. ``START name`` and ``END name`` (also BEGIN, FINISH, DONE; in any case), with or without a time
   in front;
2. a step with the seconds it took: ``name took 2.5 s``, ``name time: 2.5 seconds``,
   ``name: 2.5 sec``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voxcast.apps.app import chosen, parameter_values
from voxcast.apps.phase_log import LINE_CHARACTERS
from voxcast.errors import ConfigError, RunError, one_line
from voxcast.files import write_text

_SHELL = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1")
TEMPLATES = Path(__file__).with_name("templates")
_CPUS = re.compile(r"(?<!\{)\{cpus\}(?!\})")
VERSION_LIMIT_S = 120.0
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
MAX_PHASES = 20
MAX_HASHED_BYTES = 50_000_000
MIN_WORD = 3  # letters of the name of a phase

_WORDS = r"[A-Za-z][\w.+-]*(?: [A-Za-z][\w.+-]*){0,5}"
_LIMITS = (
    r"(?:(?P<start>(?:start|begin)(?:ed|ing|s)?)|(?P<end>(?:end|finish|done)(?:ed|ing|s)?)):?"
)
_MARK = re.compile(rf"\b{_LIMITS}\s+(?P<name>{_WORDS})\s*$", re.IGNORECASE)
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
    contained : dict
        The values that differ in its container; empty without one.
    version_command : str, optional
        Command that prints the version.
    """

    name: str
    description: str
    app: dict[str, Any]
    sources: list[str]
    notes: list[str]
    contained: dict[str, Any] = field(default_factory=dict)
    version_command: str | None = None

    @property
    def comments(self) -> list[str]:
        """What is said of the application above its values in ``conf/app``."""
        sources = [f"  {source}" for source in self.sources]
        heading = "From public documentation, not run here:"
        return [f"{self.description}.", heading, *sources, *self.notes]

    def values(self, *, in_container: bool) -> dict[str, Any]:
        """Return the values for ``conf/app``.

        Raises
        ------
        ConfigError
            If it is to run in a container and has none.
        """
        if in_container and not self.contained:
            then = "leave out --container, or write one into conf/app"
            raise ConfigError("names no container", self.name, then)
        return {**self.app, **(self.contained if in_container else {})}


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
    import yaml

    path = TEMPLATES / f"{chosen(name, template_names(), 'template')}.yaml"
    return AppTemplate(name=name, **yaml.safe_load(path.read_text(encoding="utf-8")))


def check_name(name: str) -> None:
    """Check that a name can be used as a file name and as a key.

    Raises
    ------
    ConfigError
        If it cannot.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
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
    except ValueError as error:  # an open quotation mark, or a backslash at the end
        raise ConfigError(f"cannot be split ({error}): {command}", "--command") from None
    if not words:
        raise ConfigError("is empty", "--command", "give e.g. 'tool {image} {out}'")
    if shell := [word for word in words if word in _SHELL or "${" in word]:
        then = "put the command line in a script and name that"
        raise ConfigError(f"{shell[0]} needs a shell, and none is used", "--command", then)
    return [_CPUS.sub("{threads}", word) for word in words]


def write_app(path: Path, name: str, values: dict[str, Any], comments: Iterable[str] = ()) -> None:
    """Write ``conf/app/NAME.yaml`` atomically, with the keys that differ from ``_base.yaml``."""
    import yaml

    content = {"defaults": [f"_base@{name}", "_self_"], name: values}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=10_000)
    write_text(path, "".join(f"# {comment}\n" for comment in comments) + text)


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
            argv, capture_output=True, text=True, errors="replace", check=True,
            stdin=subprocess.DEVNULL, timeout=VERSION_LIMIT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        problem, then = f"prints no version ({one_line(error)})", "give another --version-command"
        raise RunError(problem, argv[0], then) from None
    text = f"{ended.stdout}\n{ended.stderr}".strip()
    if not text:
        raise RunError("prints no version", " ".join(argv), "give another --version-command")
    number = _VERSION.search(text)
    return number[0] if number else text.splitlines()[0].strip()[:60]


def propose_phases(lines: Sequence[str]) -> dict[str, str]:
    """Return patterns of the phases that a log shows by lines of a documented kind, in its order.

    Examples
    --------
    >>> from voxcast.apps.phase_log import phases_from_log
    >>> log = ["12:00:00 START fit", "working", "12:00:09 END fit"]
    >>> [(phase.name, phase.duration_s) for phase in phases_from_log(log, propose_phases(log))]
    [('fit', 9.0)]
    """
    short = [line[:LINE_CHARACTERS] for line in lines]
    proposals = (propose(short) for propose in (_start_and_end, _stated))
    return next((patterns for patterns in proposals if 0 < len(patterns) <= MAX_PHASES), {})


def phase_name(text: str) -> str:
    """Return a text as the name of a phase: lower case, words joined by ``_``.

    Examples
    --------
    >>> phase_name("Bias correction (N4)")
    'bias_correction_n4'
    """
    return re.sub(r"\W+", "_", text.strip().lower()).strip("_") or "phase"


def _start_and_end(lines: Sequence[str]) -> dict[str, str]:
    marks = list(filter(None, map(_MARK.search, lines)))
    ended = {match["name"].lower() for match in marks if match["end"]}
    return {
        phase_name(match["name"]): rf"(?i)\b{_LIMITS}\s+{_escaped(match['name'])}\s*$"
        for match in marks
        if match["start"] and match["name"].lower() in ended
    }


def _stated(lines: Sequence[str]) -> dict[str, str]:
    patterns: dict[str, str] = {}
    for match in filter(None, map(_STATED.search, lines)):
        name = _TIME_WORDS.sub("", match["name"])
        if len(name) < MIN_WORD:
            continue
        stated = _escaped(match["name"] + match["between"])
        gap = " " if match[0][match.end("seconds") - match.start()] == " " else ""
        patterns.setdefault(phase_name(name), rf"\b{stated}(?P<seconds>\S+){gap}{match['unit']}\b")
    return patterns


def _escaped(text: str) -> str:
    return re.escape(text).replace("\\ ", " ")


def described(
    command: str | None,
    template: AppTemplate | None,
    parameters: Iterable[str],
    version_command: str | None,
    folder: Path,
    *,
    in_container: bool,
) -> dict[str, Any]:
    """Return the values of the file of an application, before a trial.

    Without a command that prints the version, it is the hash of the program's file, and of
    the files that its command names, such as a script of an interpreter.

    Parameters
    ----------
    parameters : iterable of str
        Texts ``NAME=VALUE``.
    folder : Path
        Where the command line was written; relative paths refer to it.

    Raises
    ------
    ConfigError
        If neither or both of a command and a template are given, the program cannot be started,
        or it prints no version.
    """
    from voxcast.apps.checks import UNKNOWN_VERSION, check_program

    if (command is None) == (template is None):
        then = "give e.g. --command 'tool {image} {out}/out.nii.gz', or --template recon-all"
        raise ConfigError("needs --command or --template, and not both", "app new", then)
    if in_container and template is None:
        raise ConfigError("needs a --template", "--container")
    values = {} if template is None else template.values(in_container=in_container)
    if command is not None:
        program, *arguments = argv_of(command)
        # Runs have folders of their own, so that a relative path would not lead to it.
        absolute = str(folder / program) if "/" in program else program
        values["argv"] = [absolute, *arguments]
        check_program(absolute)
    if changed := {**values.get("parameters", {}), **parameter_values(parameters)}:
        values["parameters"] = changed
    path = shutil.which(values["argv"][0])
    if version_command is None and template is not None and path:
        version_command = template.version_command
    if version_command is not None:
        return {"version": printed_version(argv_of(version_command)), **values}
    if path and not in_container:
        paths = [word for word in values["argv"][1:] if word.startswith("/")]
        # `isfile` is false for words too long for a path, where `Path.is_file` raises.
        named = [word for word in (path, *paths) if os.path.isfile(word)]  # noqa: PTH113
        values["files"] = [f for f in named if Path(f).stat().st_size <= MAX_HASHED_BYTES]
    return {"version": UNKNOWN_VERSION, **values}
