"""Locks of a project: one `voxcast learn` at a time, and none while DVC runs there."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.files import process_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

DVC_FOLDER = Path(".dvc/tmp")  # git and DVC leave it alone
LEARNING = "voxcast-learn.lock"
DVC_LOCK, DVC_STAGES = "lock", "rwlock"
PATIENCE_S = 2.0  # DVC holds its lock for a moment at the end of each stage, and in `dvc status`


@contextlib.contextmanager
def learning_lock(project: Path) -> Iterator[None]:
    """Hold the lock of learning in a project.

    Raises
    ------
    RunError
        If another `voxcast learn` holds it, or the project cannot be written.
    """
    with contextlib.ExitStack() as stack:
        _take(stack, project, LEARNING, "another `voxcast learn`")
        yield


@contextlib.contextmanager
def dvc_lock(project: Path) -> Iterator[None]:
    """Hold the lock of DVC in a project; DVC waits some seconds for it and then refuses to start.

    Raises
    ------
    RunError
        If DVC is running there, or the project cannot be written.
    """
    with contextlib.ExitStack() as stack:
        _take(stack, project, DVC_LOCK, "DVC", PATIENCE_S)
        # DVC releases the lock while a stage runs, and lists the process in another file.
        if pid := process_of_stage(project):
            reason = f"DVC (process {pid}) works here"
            raise RunError(reason, project.resolve(), "wait for it, or stop it")
        yield


def _take(
    stack: contextlib.ExitStack, project: Path, name: str, holder: str, patience_s: float = 0.0
) -> None:
    try:
        lock = process_lock(project / DVC_FOLDER / name, holder, project.resolve(), patience_s)
        stack.enter_context(lock)
    except OSError as error:
        where = error.filename or project
        raise RunError(f"cannot be written ({error.strerror})", where) from None


def process_of_stage(project: Path) -> str | None:
    """Return the living process that reads or writes for a stage of DVC; None without one."""
    path = project / DVC_FOLDER / DVC_STAGES
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # no stage ever ran here
    writers = list(listed.get("write", {}).values())
    readers = [entry for entries in listed.get("read", {}).values() for entry in entries]
    pids = (str(entry["pid"]) for entry in [*writers, *readers])
    return next((pid for pid in pids if Path("/proc", pid).exists()), None)
