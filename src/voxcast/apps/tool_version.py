"""The version of a tool, as its own command prints it."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from voxcast.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_S = 120.0
MAX_CHARACTERS = 60
ANOTHER = "give another --version-command"
_NUMBER = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


def printed_version(argv: Sequence[str]) -> str:
    """Return the first version number that a command prints, or its first line.

    Raises
    ------
    RunError
        If the command cannot be run, fails, or prints nothing. What a failed command prints is
        usually how to use it.

    Examples
    --------
    >>> printed_version(["echo", "tool 7.4.1-beta (2023)"])
    '7.4.1-beta'
    """
    try:
        ended = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=LIMIT_S,
        )  # fmt: skip
    except OSError as error:
        raise RunError(f"cannot be run ({error.strerror})", argv[0], ANOTHER) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"did not end within {LIMIT_S:.0f} s", argv[0], ANOTHER) from None
    text = f"{ended.stdout}\n{ended.stderr}"
    lines = [line.strip()[:MAX_CHARACTERS] for line in text.splitlines() if line.strip()]
    if ended.returncode:
        first_line = f" ({lines[0]})" if lines else ""
        how = "exit status" if ended.returncode > 0 else "signal"
        ending = f"ended with {how} {abs(ended.returncode)}{first_line}, so its version is unknown"
        raise RunError(ending, " ".join(argv), ANOTHER)
    if not lines:
        raise RunError("prints no version", " ".join(argv), ANOTHER)
    number = _NUMBER.search(text)
    return number[0] if number else lines[0]
