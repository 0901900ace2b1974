"""The tokens of a pool: one empty file for each cell, whose folder is the state of the cell.

A token only ever moves by a rename, which is atomic on local disks, NFS and parallel file systems,
and succeeds for exactly one process. The name of its target is unique to the process, so that a
reply that NFS has lost cannot be mistaken for a refusal. There are no locks.

============ ======================== ==========================================================
folder       name                     the cell
============ ======================== ==========================================================
``todo``     ``KEY.ATTEMPTS``         waits
``claims``   ``KEY.ATTEMPTS.HOLDER``  is run by a worker, which alone may record it
``commits``  as in ``claims``         has a complete run that is about to be recorded
``recorded`` ``KEY``                  is on record; the file holds the key of the record
``failed``   ``KEY.ATTEMPTS``         is given up
``split``    ``KEY.ATTEMPTS``         is run in parts
============ ======================== ==========================================================
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.files import sync_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TODO, CLAIMS, COMMITS, RECORDED = "todo", "claims", "commits", "recorded"
FAILED, SPLIT = "failed", "split"
FOLDERS = (TODO, CLAIMS, COMMITS, RECORDED, FAILED, SPLIT)


@dataclass(frozen=True)
class Claim:
    """The right of a worker to run and record a cell.

    Attributes
    ----------
    key : str
        Of the cell in the pool.
    attempts : int
        Attempts that have ended before.
    holder : str
        Name of the worker and number of its claim, ``WORKER~N``; never used twice.
    """

    key: str
    attempts: int
    holder: str

    @classmethod
    def from_name(cls, name: str) -> Claim:
        """Return the claim of a file; ValueError for another file."""
        key, attempts, holder = name.split(".", 2)
        return cls(key, int(attempts), holder)

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.key}.{self.attempts}.{self.holder}"

    @property
    def worker(self) -> str:
        """Name of the worker."""
        return self.holder.rpartition("~")[0]


@dataclass(frozen=True)
class Tokens:
    """The tokens below the folder of a pool."""

    folder: Path

    def make_folders(self) -> None:
        """Make the folders, private to the user."""
        for name in FOLDERS:
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)

    def create(self, key: str) -> None:
        """Make the token of a new cell, which no worker knows of yet."""
        os.close(os.open(f"{self.folder}/{TODO}/{key}.0", os.O_WRONLY | os.O_CREAT, 0o600))

    def waiting(self) -> dict[str, int]:
        """Return the number of attempts by key, of the cells that wait."""
        return dict(self._numbered(TODO))

    def given_up(self) -> dict[str, int]:
        """Return the number of attempts by key, of the cells that are given up."""
        return dict(self._numbered(FAILED))

    def split(self) -> dict[str, int]:
        """Return the number of attempts by key, of the cells that are run in parts."""
        return dict(self._numbered(SPLIT))

    def recorded(self) -> set[str]:
        """Return the keys of the cells on record."""
        return set(_names(self.folder / RECORDED))

    def is_recorded(self, key: str) -> bool:
        """Tell whether a cell is on record."""
        return (self.folder / RECORDED / key).exists()

    def record_key(self, key: str) -> str:
        """Return the key of the record of a cell that is done."""
        return (self.folder / RECORDED / key).read_text(encoding="ascii")

    def claims(self) -> list[Claim]:
        """Return the claims of all workers."""
        return self._held(CLAIMS)

    def commits(self) -> list[Claim]:
        """Return the claims whose runs are about to be recorded."""
        return self._held(COMMITS)

    def claim(self, key: str, attempts: int, holder: str, source: str = TODO) -> Claim | None:
        """Claim a cell that waits; None if another process was first."""
        claim = Claim(key, attempts, holder)
        moved = self._moved(f"{source}/{key}.{attempts}", f"{CLAIMS}/{claim.name}")
        return claim if moved else None

    def take_over(self, claim: Claim, holder: str) -> Claim | None:
        """Take the claim of a worker that is gone; None if it, or another process, was first."""
        new = Claim(claim.key, claim.attempts, holder)
        return new if self._moved(f"{CLAIMS}/{claim.name}", f"{CLAIMS}/{new.name}") else None

    def holds(self, claim: Claim) -> bool:
        """Tell whether a claim still holds."""
        return (self.folder / CLAIMS / claim.name).exists()

    def give_back(self, claim: Claim, attempts: int | None = None) -> bool:
        """Let the cell wait again, after so many attempts; False if the claim no longer held."""
        number = claim.attempts if attempts is None else attempts
        return self._moved(f"{CLAIMS}/{claim.name}", f"{TODO}/{claim.key}.{number}")

    def give_up(self, claim: Claim, attempts: int) -> bool:
        """Give the cell up; False if the claim no longer held."""
        return self._moved(f"{CLAIMS}/{claim.name}", f"{FAILED}/{claim.key}.{attempts}")

    def set_aside(self, claim: Claim, attempts: int) -> bool:
        """Leave the cell to its parts; False if the claim no longer held."""
        return self._moved(f"{CLAIMS}/{claim.name}", f"{SPLIT}/{claim.key}.{attempts}")

    def retry(self, key: str, attempts: int) -> bool:
        """Let a cell wait again that was given up, as if it had never been attempted."""
        return self._moved(f"{FAILED}/{key}.{attempts}", f"{TODO}/{key}.0")

    def drop(self, claim: Claim) -> None:
        """Remove the claim on a cell that is on record already."""
        (self.folder / CLAIMS / claim.name).unlink(missing_ok=True)

    def commit(self, claim: Claim, record_key: str, files: Iterable[Path] = ()) -> bool:
        """Decide that the run of a claim is the record of its cell; False if it no longer holds.

        From here on its folder is moved into place, by whoever comes first. The ``files`` of the
        run are on disk before that.
        """
        path = self.folder / CLAIMS / claim.name
        try:  # without O_CREAT: a claim that was taken over must not come into being again
            handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
        except FileNotFoundError:
            return False
        try:
            os.write(handle, record_key.encode("ascii"))
        finally:
            os.close(handle)
        try:
            sync_all([*files, path])
        except FileNotFoundError:
            if self.holds(claim):
                raise
            return False  # taken over meanwhile
        return self._moved(f"{CLAIMS}/{claim.name}", f"{COMMITS}/{claim.name}")

    def committed_key(self, claim: Claim) -> str | None:
        """Return the key of the record of a commit; None if it has been finished."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / COMMITS / claim.name).read_text(encoding="ascii")
        return None

    def finish(self, claim: Claim) -> None:
        """Count the cell as done, after its run was moved into place."""
        self._moved(f"{COMMITS}/{claim.name}", f"{RECORDED}/{claim.key}")

    def _moved(self, source: str, target: str) -> bool:
        try:
            (self.folder / source).rename(self.folder / target)
        except FileNotFoundError:
            # NFS repeats a request whose answer was lost, and then fails though it had succeeded.
            return (self.folder / target).exists()
        return True

    def _numbered(self, folder: str) -> Iterator[tuple[str, int]]:
        for name in _names(self.folder / folder):
            key, _, attempts = name.rpartition(".")
            if key and attempts.isdigit():
                yield key, int(attempts)

    def _held(self, folder: str) -> list[Claim]:
        claims = []
        for name in _names(self.folder / folder):
            with contextlib.suppress(ValueError):
                claims.append(Claim.from_name(name))
        return claims


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        # A file that is open on NFS leaves `.nfs…` when it is removed.
        return [entry.name for entry in entries if not entry.name.startswith(".")]
