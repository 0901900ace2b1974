"""Signs of life of a process that other machines cannot see, and the right to follow a submission.

One process at a time follows a submission, whichever node of the cluster it is on. Its claim is a
file made with O_EXCL, as locks of a shared file system may hold on one node only. A process that
holds a claim or a ticket touches its file; one that was not touched for long, by the clock of the
file system, is of a dead process. On the machine of its holder that is known at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from voxcast.errors import RunError
from voxcast.measure import processes

CLAIM_FILE, CLOCK_FILE = "follower", ".clock"
EXPIRES_S = 300.0
ALIVE_S = 20.0  # between two signs of life


class ClaimLostError(RunError):
    """Another process follows the submission now."""


@dataclass(frozen=True)
class Claim:
    """The right to follow a submission."""

    path: Path
    token: str

    def check(self) -> None:
        """Check that the claim is still ours.

        Raises
        ------
        ClaimLostError
            If another process took it for abandoned, as after a long suspension.
        """
        if _holder(self.path) != self.token:
            raise ClaimLostError("another process follows it now", self.path.parent)


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
    path, token = folder / CLAIM_FILE, processes.new_run_id()
    deadline = time.monotonic() + patience_s
    while not _created(path, f"{token} process {os.getpid()} on {socket.gethostname()}"):
        claim = _content(path)
        if is_abandoned(path, _holder(path)):
            _remove(path, claim, path.with_name(f"{CLAIM_FILE}.{token}"))
        elif time.monotonic() >= deadline:
            then = "see `voxcast status`, or stop that process first"
            process = claim.partition(" ")[2] or "another process"
            raise RunError(f"{process} follows it", folder, then)
        else:
            time.sleep(min(1.0, patience_s))
    try:
        with kept_alive(path):
            yield Claim(path, token)
    finally:
        if _holder(path) == token:
            path.unlink(missing_ok=True)


def is_followed(folder: Path) -> bool:
    """Return whether a process that lives follows the submission of a folder."""
    return not is_abandoned(folder / CLAIM_FILE, _holder(folder / CLAIM_FILE))


def holder_here(folder: Path) -> int | None:
    """Return the process of this machine that follows the submission of a folder.

    Raises
    ------
    RunError
        If a process of another machine does.
    """
    if not is_followed(folder):
        return None
    process, _, machine = _content(folder / CLAIM_FILE).partition(" process ")[2].partition(" on ")
    if machine.strip() != socket.gethostname():
        raise RunError(f"a process on {machine} follows it", folder, "stop it there")
    return int(process)


def is_abandoned(path: Path, holder: str) -> bool:
    """Return whether the process that keeps a file alive has died, as far as is known here."""
    return silent_s(path) > EXPIRES_S or processes.is_abandoned(holder)


def silent_s(path: Path) -> float:
    """Return how long ago a file was touched, by the clock of its file system; infinity if gone.

    It is opened first: an NFS client may answer for a minute from its memory otherwise.
    """
    try:
        with path.open("rb") as stream:
            touched_s = os.fstat(stream.fileno()).st_mtime
    except FileNotFoundError:
        return math.inf
    return file_system_time(path.parent) - touched_s


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


@contextlib.contextmanager
def kept_alive(path: Path, period_s: float = ALIVE_S) -> Iterator[None]:
    """Touch a file at intervals during the block, from a thread."""
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(period_s):
            with contextlib.suppress(OSError):  # a file server that is away comes back, mostly
                os.utime(path)

    thread = threading.Thread(target=touch, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
        with path.open("x") as stream:
            stream.write(content)
    except FileExistsError:
        return False
    except OSError:  # of a full disk: an empty claim would have no holder
        path.unlink(missing_ok=True)
        raise
    return True


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _holder(path: Path) -> str:
    return _content(path).partition(" ")[0]
