"""Application and subject from the names of jobs, by regular expressions of the user.

A pattern may need exponential time on a name that it nearly matches. Names are therefore matched
in a process of their own, which is stopped after a while, and long names are not matched at all.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    from voxcast.history.imports.file_records import FileRecords

MAX_NAME_CHARACTERS = 256  # Slurm's and Nextflow's names are shorter
MAX_PATTERN_CHARACTERS = 1000
MATCH_S = 20.0


@dataclass(frozen=True)
class NamePattern:
    """A regular expression, its group that holds the value, and the option that gave it."""

    text: str
    group: str | int
    option: str


def name_pattern(text: str, group: str, option: str) -> NamePattern:
    """Check a pattern; its value is the group of this name, else the first group.

    Raises
    ------
    ConfigError
        If it is no regular expression, is too long, or has no group.

    Examples
    --------
    >>> name_pattern("(?P<app>[a-z]+)_(.*)", "app", "--app-pattern").group
    'app'
    """
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise ConfigError(f"is longer than {MAX_PATTERN_CHARACTERS} characters", option)
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        problem = f"is no regular expression: {error}"
        raise ConfigError(problem, option, "see the documentation of Python's re") from None
    if not compiled.groups:
        then = f"put the part that is meant in parentheses: ([a-z]+) or (?P<{group}>[a-z]+)"
        raise ConfigError(f"has no group: {text!r}", option, then)
    return NamePattern(text, group if group in compiled.groupindex else 1, option)


def values_by_name(pattern: NamePattern, names: Collection[str]) -> dict[str, str]:
    """Return what the pattern finds in each name, anywhere in it; empty where it does not match.

    Raises
    ------
    ConfigError
        If matching takes longer than `MATCH_S`.
    """
    distinct = sorted({name for name in names if len(name) <= MAX_NAME_CHARACTERS})
    question = json.dumps({"text": pattern.text, "group": pattern.group, "names": distinct})
    try:
        answer = subprocess.run(
            [sys.executable, "-m", __name__],
            input=question, capture_output=True, text=True, check=True, timeout=MATCH_S,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        problem = f"takes more than {MATCH_S:g} s on the names of these jobs: {pattern.text!r}"
        then = "write it without repetitions inside repetitions"
        raise ConfigError(problem, pattern.option, then) from None
    return dict(zip(distinct, json.loads(answer), strict=True))


def name_runs(
    sources: Collection[FileRecords], app: NamePattern | None, subject: NamePattern | None
) -> None:
    """Set application and subject of all runs from the names of their jobs.

    A run whose name does not match the pattern of the application is skipped; one whose name does
    not match that of the subject has no subject.

    Raises
    ------
    ConfigError
        See `values_by_name`.
    """
    names = {name for records in sources for name in records.names}
    if app is not None:
        app_by_name = values_by_name(app, names)
        for records in sources:
            numbered = list(zip(records.rows, records.lines, records.names, strict=True))
            matching = [record for record in numbered if app_by_name.get(record[2])]
            for row, line, name in numbered:
                row["app"] = app_by_name.get(name) or row["app"]
                if not app_by_name.get(name):
                    records.skip(line, f"the name {name[:80]!r} does not match {app.option}")
            records.rows = [row for row, _, _ in matching]
            records.lines = [line for _, line, _ in matching]
            records.names = [name for _, _, name in matching]
    if subject is not None:
        subject_by_name = values_by_name(subject, names)
        for records in sources:
            for row, line, name in zip(records.rows, records.lines, records.names, strict=True):
                row["subject"] = subject_by_name.get(name) or row["subject"]
                if not subject_by_name.get(name):
                    problem = f"the name {name[:80]!r} does not match {subject.option}"
                    records.miss(line, f"subject: {problem}")


def _main() -> None:
    """Answer the question of `values_by_name` on stdin."""
    question = json.load(sys.stdin)
    pattern, group = re.compile(question["text"]), question["group"]
    matches = (pattern.search(name) for name in question["names"])
    json.dump([match[group] or "" if match else "" for match in matches], sys.stdout)


if __name__ == "__main__":
    _main()
