"""What runs leave behind when the process that measures them is killed, and its removal.

The kernel ends the leader of such a run. Processes that it started, the control group and the
temporary folder stay. They are removed before the next run, and by ``voxcast clean``.
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

from voxcast.apps.containers import RUN_VARIABLE
from voxcast.errors import VoxcastError
from voxcast.files import remove_folder
from voxcast.profiling import cgroups
from voxcast.profiling.processes import alive, listed, marked, stop_all
from voxcast.profiling.run_marks import PREFIX, is_abandoned

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
    """Return what dead drivers of this user left on this machine."""
    return [*_processes(), *_groups(), *_temporary_folders()]


def remove(leftover: Leftover) -> None:
    """Remove a leftover; what is gone already is ignored.

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
        cgroups.remove([path])
        stays = path.exists()
    else:
        with contextlib.suppress(OSError):
            remove_folder(path) if path.is_dir() else path.unlink(missing_ok=True)
        stays = path.exists()
    if stays:
        raise VoxcastError("cannot be removed", leftover, "it may belong to another user")


def sweep_abandoned() -> None:
    """Remove what dead drivers left, and log it; what cannot be removed is logged too."""
    for leftover in abandoned():
        try:
            remove(leftover)
            logger.info("removed %s", leftover)
        except VoxcastError as error:
            logger.warning("%s", error)


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
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                name, _, value = word.partition(b"=")
                if name == RUN_VARIABLE.encode():
                    by_run.setdefault(value.decode(errors="replace"), set()).add(pid)
    for run_id, pids in by_run.items():
        if is_abandoned(run_id) and (left := alive(pids)):
            yield Leftover("processes", run_id, tuple(sorted(left)))


def _groups() -> Iterator[Leftover]:
    for folder in cgroups.groups_of_runs():
        if is_abandoned(folder.name) and os.access(folder.parent, os.W_OK):
            yield Leftover("control group", str(folder))


def _temporary_folders() -> Iterator[Leftover]:
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        is_ours = path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid()
        if is_ours and is_abandoned(path.name):
            yield Leftover("folder", str(path), size_bytes=size_bytes(path))
