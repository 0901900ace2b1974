"""A process of `voxcast.web.images.image_reader` as the service holds it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.web.images.image_reader import MODULE

if TYPE_CHECKING:
    from voxcast.web.settings import ImageLimits

START_S = 60.0  # at most, to import what reads images
MAX_ANSWER_BYTES = 2**24
GROWTH_BYTES = 40_000_000  # beyond which an idle reader is replaced
# Nothing else of the environment is passed on: it may hold the keys of registries and buckets.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ReaderEndedError(Exception):
    """A reader ended, or was ended, before it had answered.

    Attributes
    ----------
    signal : int
        What ended it; 0 where it ended by itself.
    timed_out : bool
        Whether it was ended because it took too long.
    """

    def __init__(self, number: int, *, timed_out: bool = False) -> None:
        super().__init__(f"signal {number}")
        self.signal, self.timed_out = number, timed_out

    @property
    def of_the_image(self) -> bool:
        """Whether it took too long, rather than being ended from outside."""
        return self.timed_out or self.signal == signal.SIGXCPU


class ReaderProcess:
    """One reader, which answers one image at a time.

    Parameters
    ----------
    folder : Path
        With the links of `voxcast.web.images.image_reader`.
    limits : ImageLimits
        Of time.
    """

    def __init__(self, folder: Path, limits: ImageLimits) -> None:
        self._wall_s = 2.0 * limits.read_s
        self._connection, its_end = socket.socketpair()
        self._received = bytearray()
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        # -P: no module is taken from the current folder.
        command = [
            sys.executable, "-P", "-m", MODULE, "--parent", str(os.getpid()),
            "--folder", str(folder), "--cpu-s", str(limits.read_s),
        ]  # fmt: skip
        with its_end:
            self._process = subprocess.Popen(
                command,
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment | ONE_THREAD,
            )
        self.idle_bytes = 0  # known from its first image on

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, descriptor: int, task: dict[str, Any]) -> dict[str, Any]:
        """Return the answer for an open file.

        Raises
        ------
        ReaderEndedError
            If there is none; the reader cannot be asked again.
        """
        if not self.idle_bytes:
            self._line(START_S)
            self.idle_bytes = self.resident_bytes()
        try:
            socket.send_fds(self._connection, [json.dumps(task).encode() + b"\n"], [descriptor])
        except OSError:
            raise self._ended() from None
        answer: dict[str, Any] = json.loads(self._line(self._wall_s))
        return answer

    def resident_bytes(self) -> int:
        """Return its memory now; 0 where it has ended."""
        return self._status_bytes("VmRSS:")

    def peak_bytes(self) -> int:
        """Return the greatest memory that it ever had; 0 where it has ended."""
        return self._status_bytes("VmHWM:")

    def _status_bytes(self, name: str) -> int:
        try:
            fields = Path(f"/proc/{self.pid}/status").read_text().split()
        except OSError:
            return 0
        return int(fields[fields.index(name) + 1]) * 1024 if name in fields else 0

    @property
    def has_grown(self) -> bool:
        """Whether it holds much more memory than before its first image."""
        return self.resident_bytes() > self.idle_bytes + GROWTH_BYTES

    def end(self) -> int:
        """End it; return the number of the signal that ended it, 0 for none."""
        self._connection.close()
        self._process.kill()
        return max(0, -self._process.wait())

    def _line(self, limit_s: float) -> bytes:
        deadline = time.monotonic() + limit_s
        while not self._received.endswith(b"\n"):
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                part = self._connection.recv(2**18)
            except TimeoutError:
                self.end()
                raise ReaderEndedError(signal.SIGKILL, timed_out=True) from None
            except OSError:
                part = b""
            if not part or len(self._received) > MAX_ANSWER_BYTES:
                raise self._ended()
            self._received += part
        line = bytes(self._received)
        self._received.clear()
        return line

    def _ended(self) -> ReaderEndedError:
        """Wait until it has ended, and return how."""
        self._connection.close()
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            code = -self.end()
        return ReaderEndedError(max(0, -code))
