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
_NUMBER = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


def printed_version(argv: Sequence[str]) -> str:
    """Return the first version number that a command prints, or its first line.

    The exit status is not considered: many tools print their version as an error.

    Raises
    ------
    RunError
        If the command cannot be run, or prints nothing.

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
        raise RunError(f"cannot be run ({error.strerror})", argv[0]) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"did not end within {LIMIT_S:.0f} s", argv[0]) from None
    text = f"{ended.stdout}\n{ended.stderr}"
    number = _NUMBER.search(text)
    if number:
        return number[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise RunError("prints no version", argv[0], "give another --version-command")
    return lines[0][:MAX_CHARACTERS]
