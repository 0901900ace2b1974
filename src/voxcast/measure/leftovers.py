"""What runs leave behind when the process that measures them is killed, and its removal.

The kernel ends the leader of such a run. Processes that it started, the control group and the
temporary folder stay. They are removed before the next run, and by ``voxcast doctor --clean``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from voxcast.errors import VoxcastError
from voxcast.files import read_json, remove_folder
from voxcast.measure import meters
from voxcast.measure.runner import DRIVER_FILE
from voxcast.measure.tree import PREFIX, alive, is_abandoned, listed, mark_of, marked, stop_all

logger = logging.getLogger(__name__)

Kind = Literal["processes", "control group", "folder", "file"]


@dataclass(frozen=True)
class Leftover:
    """One thing to remove: `name` is a run's id for processes, else a path."""

    kind: Kind
    name: str
    pids: tuple[int, ...] = ()
    size_bytes: int = 0

    def __str__(self) -> str:
        if self.kind != "processes":
            return f"{self.kind} {self.name}"
        numbers = ", ".join(map(str, self.pids))
        return f"process{'es' if len(self.pids) > 1 else ''} {numbers} of a run that was abandoned"


def abandoned() -> list[Leftover]:
    """Return everything that dead drivers of this user left on this machine."""
    return [*_processes(), *_groups(), *_temporary_folders()]


def remove(leftover: Leftover) -> None:
    """Remove a leftover; nothing happens if it is gone already.

    Raises
    ------
    VoxcastError
        If it is still there afterwards.
    """
    path = Path(leftover.name)
    if leftover.kind == "processes":
        stop_all(lambda: alive(marked(leftover.name)), grace_s=0.0)
        stays = bool(alive(marked(leftover.name)))
    elif leftover.kind == "control group":
        meters.remove([path])
        stays = path.exists()
    else:
        with contextlib.suppress(OSError):
            remove_folder(path) if path.is_dir() else path.unlink(missing_ok=True)
        stays = path.exists()
    if stays:
        raise VoxcastError("cannot be removed", leftover, "it may belong to another user")


def sweep_abandoned() -> None:
    """Remove the leftovers of dead drivers, and log each; some may belong to another user."""
    for leftover in abandoned():
        try:
            remove(leftover)
            logger.info("removed %s", leftover)
        except VoxcastError as error:
            logger.warning("%s", error)


def sweep(folder: Path) -> None:
    """Remove the folder of a run whose driver is dead, and kill its remaining processes."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = read_json(folder / DRIVER_FILE)
        groups = map(Path, content["groups"])
        # The file may have been written by others: no other group is emptied.
        meters.remove(group for group in groups if group.name == f"{PREFIX}{content['run_id']}")
        stop_all(lambda: marked(content["run_id"]), grace_s=0.0)
    remove_folder(folder)


def was_abandoned(folder: Path) -> bool:
    """Return whether a folder is of a run whose driver is dead."""
    try:
        return is_abandoned(read_json(folder / DRIVER_FILE)["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def size_bytes(path: Path) -> int:
    """Return the size of a file, or of all files in a folder; links count nothing."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


def _processes() -> Iterator[Leftover]:
    by_run: dict[str, set[int]] = {}
    for pid in listed() - {os.getpid()}:
        if run_id := mark_of(pid):
            by_run.setdefault(run_id, set()).add(pid)
    for run_id, pids in by_run.items():
        if is_abandoned(run_id) and (left := alive(pids)):
            yield Leftover("processes", run_id, tuple(sorted(left)))


def _groups() -> Iterator[Leftover]:
    for folder in meters.groups_of_runs():
        if is_abandoned(folder.name) and os.access(folder.parent, os.W_OK):
            yield Leftover("control group", str(folder))


def _temporary_folders() -> Iterator[Leftover]:
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        is_ours = path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
        if is_ours and is_abandoned(path.name):
            yield Leftover("folder", str(path), size_bytes=size_bytes(path))
