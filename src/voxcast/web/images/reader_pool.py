"""The readers of a service: few processes, a bounded number of waiting images, one folder.

The folder holds two links and a cache of what was computed, no image: uploads are files without a
name, which the system removes when the service closes them or ends. A folder that a killed
service has left is removed when another one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from voxcast.errors import ImageError
from voxcast.web.images.image_reader import COMPRESSED, IMAGE_FD, PLAIN, TOO_SMALL
from voxcast.web.images.reader_process import ReaderEndedError, ReaderProcess
from voxcast.web.images.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from voxcast.web.settings import ImageLimits

PREFIX = "voxcast-images-"
ATTEMPTS = 2  # a reader may be ended by something else than its image
RETRY_AFTER_S = 2
NEW_S = 10.0
ENDED = "ended"  # of an answer: whether something outside ended what was to give it

logger = logging.getLogger(__name__)


class ReaderPool:
    """Reads images in processes of their own.

    Parameters
    ----------
    limits : ImageLimits
        See `voxcast.web.settings.ImageLimits`.
    """

    def __init__(self, limits: ImageLimits) -> None:
        self.limits = limits
        self.folder, self._lock = _own_folder()
        self._threads = ThreadPoolExecutor(limits.readers, "image-reader")
        self._guard = threading.Lock()
        self._readers = [self.new_reader()]  # others when they are needed
        self._idle = list(self._readers)
        self._images = 0
        self._memory = SharedMemory(limits.memory_bytes)
        self._share_bytes = limits.memory_bytes // limits.readers

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places of images for the block.

        Raises
        ------
        HTTPException
            503 if there is none.
        """
        if self._images >= self.limits.images:
            raise _unavailable(f"{self.limits.images} images are being read")
        self._images += 1
        try:
            yield
        finally:
            self._images -= 1

    async def read(self, file: BinaryIO, task: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a reader for an open file, see `voxcast.web.images.image_reader`.

        Raises
        ------
        ImageError
            If the image is refused.
        HTTPException
            503 if readers were ended from outside.
        """
        descriptor = os.dup(file.fileno())  # this question may be given up before it is read
        future = self._threads.submit(self._read, descriptor, task)
        future.add_done_callback(lambda _: os.close(descriptor))
        answer = await asyncio.wrap_future(future)
        if ENDED in answer:
            raise _unavailable("what reads images was ended from outside")
        if "problem" in answer:
            raise ImageError(str(answer["problem"]))
        return answer

    def new_reader(self) -> ReaderProcess:
        """Start a reader with the folder of the pool; the caller ends it."""
        return ReaderProcess(self.folder, self.limits)

    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        with self._guard:
            return [reader.pid for reader in self._readers]

    def close(self) -> None:
        """End all processes and remove the folder."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            for reader in self._readers:
                reader.end()
            self._readers, self._idle = [], []
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def _read(self, descriptor: int, task: dict[str, Any]) -> dict[str, Any]:
        """Read an image with its share of the memory, and where that is too little with all."""
        answer: dict[str, Any] = {}
        for memory_bytes in dict.fromkeys((self._share_bytes, self.limits.memory_bytes)):
            with self._memory.lent(memory_bytes):
                answer = self._ask(descriptor, task | {"memory_bytes": memory_bytes})
            if not answer.get(TOO_SMALL):
                break
        return answer

    def _ask(self, descriptor: int, task: dict[str, Any]) -> dict[str, Any]:
        ended_by = 0
        for attempt in range(ATTEMPTS):
            reader = self._take()
            try:
                answer = reader.ask(descriptor, task)
            except ReaderEndedError as error:
                self._replace(reader)
                if error.of_the_image:
                    problem = f"takes more than {self.limits.read_s} s of computing to be read"
                    return {"problem": problem}
                ended_by = error.signal
                logger.warning("a reader of images ended (%s), attempt %d", error, attempt + 1)
                continue
            except BaseException:
                self._replace(reader)
                raise
            if "unforeseen" in answer:
                logger.warning("an image made its reader raise %s", answer["unforeseen"])
            if reader.has_grown:
                self._replace(reader)
            else:
                self._give_back(reader)
            return answer
        if ended_by == signal.SIGKILL:  # no limit does this: somebody, or the system for memory
            return {ENDED: True}
        return {"problem": "ends the process that reads it; convert it again"}

    def _take(self) -> ReaderProcess:
        with self._guard:
            if not self._idle:
                self._idle.append(self.new_reader())
                self._readers += self._idle
            return self._idle.pop()

    def _give_back(self, reader: ReaderProcess) -> None:
        with self._guard:
            self._idle.append(reader)

    def _replace(self, reader: ReaderProcess) -> None:
        """Start another reader at once, so that the next image does not wait for its imports."""
        reader.end()
        with self._guard:
            if reader in self._readers:  # else the pool was closed meanwhile
                self._readers.remove(reader)
                self._readers.append(self.new_reader())
                self._idle.append(self._readers[-1])


def _unavailable(problem: str) -> HTTPException:
    return HTTPException(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{problem}; ask again in a moment",
        {"Retry-After": str(RETRY_AFTER_S)},
    )


def _own_folder() -> tuple[Path, int]:
    """Make the folder of this service; return it with the descriptor that locks it."""
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for name in (PLAIN, COMPRESSED):
        (folder / name).symlink_to(f"/proc/self/fd/{IMAGE_FD}")
    return folder, lock


def _remove_abandoned() -> None:
    """Remove the folders of services of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(handle)
                is_new = time.time() - status.st_mtime < NEW_S  # and may not be locked yet
                if status.st_uid == os.getuid() and not is_new:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
