"""Images are read in processes of their own: a hostile one ends a process, and not the service.

A reader opens a file of the service by its descriptor: an upload is a file without a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from voxcast.errors import ImageError, one_line
from voxcast.measure.processes import end_with
from voxcast.web.guards import later

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from voxcast.web.server import ImageLimits

MAX_TASKS = 100  # of a reader, which is then replaced by a fresh one
BUSY = HTTPStatus.SERVICE_UNAVAILABLE
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

logger = logging.getLogger(__name__)


class ReaderPool:
    """Reads images in processes of their own.

    Parameters
    ----------
    limits : ImageLimits
        See `voxcast.web.server.ImageLimits`.
    """

    def __init__(self, limits: ImageLimits) -> None:
        self.limits = limits
        self._images = 0
        self._pool = self._started()

    def _started(self) -> ProcessPool:
        pool = ProcessPool(
            self.limits.readers,
            MAX_TASKS,
            _prepare,
            [os.getpid(), self.limits.memory_bytes],
            multiprocessing.get_context("spawn"),
        )
        pool.schedule(_is_ready)  # imports take a second, for which no image should wait
        return pool

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places of images for the block.

        Raises
        ------
        HTTPException
            503 if all are taken.
        """
        if self._images >= self.limits.images:
            raise later(BUSY, f"{self.limits.images} images are being read")
        self._images += 1
        try:
            yield
        finally:
            self._images -= 1

    def submit(self, file: BinaryIO, task: dict[str, Any]) -> ProcessFuture[dict[str, Any]]:
        """Have an open file read; see `voxcast.web.image_reader.answer`."""
        if not self._pool.active:  # a reader was killed while it had nothing to do
            self.close()
            self._pool = self._started()
        descriptor = os.dup(file.fileno())  # the question may be given up before it is read
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        future = self._pool.schedule(_read, [path, task], timeout=self.limits.read_s)
        future.add_done_callback(lambda _: os.close(descriptor))
        return future

    async def read(self, file: BinaryIO, task: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a reader for an open file; a question that is given up ends it.

        Raises
        ------
        ImageError
            If the image is refused.
        HTTPException
            503 if the reader was ended from outside.
        """
        try:
            answer: dict[str, Any] = await asyncio.wrap_future(self.submit(file, task))
        except TimeoutError:
            problem = f"takes more than {self.limits.read_s} s to be read"
            raise ImageError(problem) from None
        except (ProcessExpired, BrokenProcessPool) as error:
            logger.warning("a reader of images ended: %s", one_line(error))
            # By somebody, or by the system for memory.
            if getattr(error, "exitcode", -signal.SIGKILL) == -signal.SIGKILL:
                raise later(BUSY, "what reads images was ended from outside") from None
            problem = "ends the process that reads it; convert it again"
            raise ImageError(problem) from None
        if "unforeseen" in answer:
            logger.warning("an image made its reader raise %s", answer["unforeseen"])
        if "problem" in answer:
            raise ImageError(str(answer["problem"]))
        return answer

    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        return sorted(process.pid for process in multiprocessing.active_children() if process.pid)

    def close(self) -> None:
        """End all processes."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()


def _prepare(parent: int, memory_bytes: int) -> None:
    """Prepare a reader, which ends with the service."""
    end_with(parent)
    os.environ |= dict.fromkeys(THREADS, "1")
    from voxcast.web import image_reader  # numpy, after its number of threads

    image_reader.prepare(memory_bytes)


def _is_ready() -> None:
    """Do nothing."""


def _read(path: str, task: dict[str, Any]) -> dict[str, Any]:
    from voxcast.web import image_reader

    return image_reader.answer(path, task)
