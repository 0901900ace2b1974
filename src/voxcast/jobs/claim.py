"""One process at a time follows a submission, whichever node of the cluster it is on.

The claim is a file made with O_EXCL, as locks of a shared file system may hold on one node only.
Its holder touches it while it works; a claim that was not touched for long, by the clock of the
file system, is of a dead process. On the machine of its holder that is known at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from voxcast.errors import RunError
from voxcast.measure import tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLAIM_FILE, CLOCK_FILE = "follower.json", ".clock"
EXPIRES_S = 300.0  # above every poll


class ClaimLostError(RunError):
    """Another process follows the submission now."""


class Claim:
    """The right to follow a submission."""

    def __init__(self, path: Path, token: str) -> None:
        self.path = path
        self.token = token

    def touch(self) -> None:
        """Show that this process lives.

        Raises
        ------
        ClaimLostError
            If another process took the claim for abandoned, as after a long suspension.
        """
        if _holder(self.path).get("token") != self.token:
            raise ClaimLostError("another process follows it now", self.path.parent)
        os.utime(self.path)


@contextlib.contextmanager
def claimed(folder: Path, patience_s: float = 0.0) -> Iterator[Claim]:
    """Hold the claim of a submission for the block; its folder may not be made yet.

    Parameters
    ----------
    patience_s : float
        Time to wait for its holder.

    Raises
    ------
    RunError
        If another process that lives holds it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, token = folder / CLAIM_FILE, tree.new_run_id()
    content = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "token": token})
    deadline = time.monotonic() + patience_s
    while not _created(path, content):
        abandoned = _content(path)
        if is_abandoned(path):
            _remove(path, abandoned, path.with_name(f"{CLAIM_FILE}.{token}"))
            continue
        if time.monotonic() >= deadline:
            holder = _holder(path)
            who_follows = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
            then = "see `voxcast status`, or stop that process first"
            raise RunError(f"{who_follows} follows it", folder, then)
        time.sleep(min(1.0, patience_s))
    try:
        yield Claim(path, token)
    finally:
        if _holder(path).get("token") == token:
            path.unlink(missing_ok=True)


def is_followed(folder: Path) -> bool:
    """Return whether a process that lives follows the submission of a folder."""
    path = folder / CLAIM_FILE
    return path.exists() and not is_abandoned(path)


def is_abandoned(path: Path) -> bool:
    """Return whether the process that holds a claim has died, as far as is known here."""
    return is_silent(path) or tree.is_abandoned(str(_holder(path).get("token")))


def is_silent(path: Path) -> bool:
    """Return whether a file that a process keeps alive was not touched for long."""
    last_s = modified_s(path)
    return last_s is not None and file_system_time(path.parent) - last_s > EXPIRES_S


def file_system_time(folder: Path) -> float:
    """Return the present time by the clock of the file system of ``folder``, in s since 1970.

    Clocks of machines differ by minutes; times of files on one file system are of one clock.
    """
    handle = os.open(folder / CLOCK_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.utime(handle)  # without a time, so that a file server takes its own
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)


def modified_s(path: Path) -> float | None:
    """Return when a file was last changed, by the clock of its file system; None if it is gone.

    It is opened first: an NFS client may answer for a minute from its memory otherwise.
    """
    try:
        with path.open("rb") as stream:
            return os.fstat(stream.fileno()).st_mtime
    except FileNotFoundError:
        return None


class KeptAlive:
    """Touches a file at intervals during its block, from a thread."""

    def __init__(self, path: Path, period_s: float) -> None:
        self._path, self._period_s = path, period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._touch, name="alive", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _touch(self) -> None:
        while not self._ended.wait(self._period_s):
            with contextlib.suppress(OSError):  # a file server that is away comes back, mostly
                os.utime(self._path)


def _remove(path: Path, abandoned: str, aside: Path) -> None:
    """Remove an abandoned claim, and no other that has come in its place meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)
        if _content(aside) != abandoned:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(aside)
        aside.unlink()


def _created(path: Path, content: str) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(content)
    except OSError:  # of a full disk: an empty claim would have no holder
        path.unlink(missing_ok=True)
        raise
    return True


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _holder(path: Path) -> dict[str, object]:
    try:
        content = json.loads(_content(path))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
