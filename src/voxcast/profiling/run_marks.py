"""Marks of runs: each names the process that measures it, so that what a dead one left is known.

Ids of runs, their control groups and the marks of their processes begin with it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import uuid
from pathlib import Path

from voxcast.profiling.processes import read_stat

PREFIX = "voxcast-"  # of control groups and temporary folders
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")
_MARK = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)-[0-9a-z_]+")


def new_run_id() -> str:
    """Return an id for a run that this process measures."""
    return f"{_mark()}{uuid.uuid4().hex[:12]}"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder of this process; it is removed when its block ends."""
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}{_mark()}")


def is_abandoned(name: str) -> bool:
    """Tell whether the process that a mark names is dead.

    False for other names, and for processes of another machine, start or container, which cannot
    be seen from here.

    Examples
    --------
    >>> is_abandoned(new_run_id()), is_abandoned("3f2b"), is_abandoned(f"{_machine()}-1-0-a")
    (False, False, True)
    """
    match = _MARK.fullmatch(name.removeprefix(PREFIX))
    if match is None or match[1] != _machine():
        return False
    stat = read_stat(int(match[2]))
    return stat is None or stat.state in "ZX" or stat.started != int(match[3])


def _mark() -> str:
    stat = read_stat(os.getpid())
    return f"{_machine()}-{os.getpid()}-{0 if stat is None else stat.started}-"


def _machine() -> str:
    """Return what tells apart process ids: eight digits for this start and this container."""
    namespace = NAMESPACE.stat().st_ino
    return hashlib.sha256(f"{BOOT_ID.read_text()}{namespace}".encode()).hexdigest()[:8]
