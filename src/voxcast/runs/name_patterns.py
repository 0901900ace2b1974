"""Application and subject from the names of jobs, by regular expressions of the user.

A pattern may need exponential time on a name that nearly matches. Names are therefore matched in a
process of their own with a time limit, and long names are not matched at all.
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
        If it is not a regular expression, is too long, or has no group.

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
    """Return the match of the pattern in each name, anywhere in it; empty where it does not match.

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


def _main() -> None:
    """Answer the question of `values_by_name` on stdin."""
    question = json.load(sys.stdin)
    pattern, group = re.compile(question["text"]), question["group"]
    matches = (pattern.search(name) for name in question["names"])
    json.dump([match[group] or "" if match else "" for match in matches], sys.stdout)


if __name__ == "__main__":
    _main()
