"""Atomic writes of files and folders, canonical JSON, hashes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PARTIAL = ".partial-"  # prefix of unfinished files and folders, which are removed later
FOLDER_HASH = "2:"  # version of how a folder is hashed
SYNC_THREADS = 8  # as many as a run has files


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` and move it into place when the block succeeds.

    The file at ``path`` is therefore the old one or the complete new one, even if the process is
    killed or the disk is full.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept, because writers such as nibabel depend on it.
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=PARTIAL, suffix="".join(target.suffixes[-2:])
    )
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)
        sync(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder beside ``path`` and move it there, synced, when the block succeeds.

    Raises
    ------
    OSError
        If ``path`` is a non-empty folder when the block ends.
    """
    target = Path(path)
    partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=target.parent))
    try:
        yield partial
        partial.chmod(0o755)
        commit_folder(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def commit_folder(partial: Path, target: Path) -> None:
    """Sync all files of a finished folder to disk and move it to its place."""
    sync_folder(partial)
    partial.rename(target)
    sync(target.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder and what is directly in it to disk."""
    sync_all(with_content(folder))


def with_content(folder: Path) -> list[Path]:
    """Return a folder and what is directly in it, for `sync_all`."""
    return [*folder.iterdir(), folder]


def sync_all(paths: Iterable[Path]) -> None:
    """Sync files and folders to disk at the same time, which file systems commit together.

    One after the other, each waits for a commit of its own, and a process on a busy machine for
    its turn after each.
    """
    list(_sync_threads().map(sync, paths))


@functools.cache
def _sync_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(SYNC_THREADS, "sync")


os.register_at_fork(after_in_child=_sync_threads.cache_clear)  # a child has none of our threads


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Remove a folder with its content, including read-only folders."""

    def remove_locked(_: object, name: str, __: object) -> None:
        path = Path(name)
        with contextlib.suppress(FileNotFoundError):
            if path != Path(folder):  # permissions of the parent are not changed
                path.parent.chmod(0o700)
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                path.chmod(0o700)
                shutil.rmtree(path)

    shutil.rmtree(folder, onerror=remove_locked)


def sync(path: str | os.PathLike[str]) -> None:
    """Sync a file, or the directory entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an exclusive lock on ``folder``, created if missing; no lock file is left."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def process_lock(path: Path, holder: str, where: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file ``path``, which names this process; it goes when the process ends.

    Parameters
    ----------
    holder, where : str, Path
        Who else may hold the lock, and the folder that it protects, for the error.
    patience_s : float
        Time to wait for another process.

    Raises
    ------
    RunError
        If another process holds it for longer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    lock.seek(0)
                    reason = f"{holder} (process {lock.read().strip() or 'unknown'}) works here"
                    raise RunError(reason, where, "wait for it, or stop it") from None
                time.sleep(0.05)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` atomically as UTF-8; bytes of file names that are not stay as they are."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` atomically as indented JSON with sorted keys; NaN raises ValueError."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Return ``value`` as indented JSON with sorted keys; NaN raises ValueError."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def text_tail(path: str | os.PathLike[str], n_bytes: int = 10_000) -> str:
    """Return the last ``n_bytes`` of a text file; what is not UTF-8 is replaced."""
    with Path(path).open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - n_bytes))
        return stream.read().decode("utf-8", errors="replace")


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of ``value``: sorted keys, no spaces, no NaN.

    Examples
    --------
    >>> canonical_json({"b": 1, "a": [1.0, None]})
    '{"a":[1.0,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_folder(folder: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of the files in a folder and its subfolders: names, sizes and hashes.

    Hidden files do not count: file managers leave them in any folder. The hash begins with the
    version of how it is computed.
    """
    files = [
        (name, path.stat().st_size, sha256_file(path)) for name, path in _files_in(folder).items()
    ]
    return FOLDER_HASH + sha256_of(files)


def _files_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    root = Path(folder)
    files = (p for p in root.rglob("*") if p.is_file() and not p.name.startswith("."))
    return {str(path.relative_to(root)): path for path in sorted(files)}


def is_empty(folder: Path) -> bool:
    """Whether a folder is there and has nothing in it."""
    return folder.is_dir() and not any(folder.iterdir())
