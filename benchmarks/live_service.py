"""A service in a process of its own, with the memory that it and its readers take."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import psutil

from voxcast.web.server import MAX_UPLOAD_BYTES, ImageLimits, Settings

START_S = 90.0
SAMPLE_S = 0.01


@dataclass
class LiveService:
    """A service that is running.

    Attributes
    ----------
    url : str
        Its address.
    process : psutil.Process
        Its process; the readers are its children.
    peak_bytes : int
        Greatest memory of all its processes together since the last `rest`.
    """

    url: str
    process: psutil.Process
    peak_bytes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def memory_bytes(self) -> int:
        """Return the present memory of the service and its readers."""
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in (self.process, *self.process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
        return total

    def rest(self) -> int:
        """Forget the peak; return the memory now."""
        self.peak_bytes = self.memory_bytes()
        return self.peak_bytes

    def watch(self) -> None:
        """Sample until the service ends."""
        while not self._stop.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, self.memory_bytes())

    def stop(self) -> None:
        """End the sampling."""
        self._stop.set()


@contextlib.contextmanager
def live_service(
    project: Path,
    log: Path,
    roots: tuple[Path, ...] = (),
    limits: ImageLimits | None = None,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
    folder: Path | None = None,
) -> Iterator[LiveService]:
    """Run a service of the champion of a project for the block.

    Parameters
    ----------
    project : Path
        With the registry.
    log : Path
        Is given what the service prints.
    roots : tuple of Path
        Folders whose images may be named.
    limits : ImageLimits, optional
        Of reading.
    max_upload_bytes : int
        Of a request.
    folder : Path, optional
        For temporary files.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(Path(__file__).resolve()), str(project), "--port", str(port),
               "--max-upload-bytes", str(max_upload_bytes)]  # fmt: skip
    for root in roots:
        command += ["--root", str(root)]
    for entry in fields(limits or ImageLimits()):
        command += [f"--{entry.name}", str(getattr(limits or ImageLimits(), entry.name))]
    environment = {**os.environ, **({"TMPDIR": str(folder)} if folder else {})}
    with log.open("w") as output:
        started = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    service = LiveService(f"http://127.0.0.1:{port}", psutil.Process(started.pid))
    watcher = threading.Thread(target=service.watch, daemon=True)
    try:
        deadline = time.monotonic() + START_S
        while not _answers(service.url):
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        watcher.start()
        yield service
    finally:
        service.stop()
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/openapi.json", timeout=5)  # noqa: S310  # of our own
    except OSError:
        return False
    return True


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", type=Path, action="append", default=[])
    parser.add_argument("--max-upload-bytes", type=int, default=MAX_UPLOAD_BYTES)
    for entry in fields(ImageLimits()):
        parser.add_argument(f"--{entry.name}", type=int, default=entry.default)
    args = parser.parse_args()
    import uvicorn

    from voxcast.serving.model_store import ModelStore
    from voxcast.web.application import application

    limits = ImageLimits(
        **{entry.name: getattr(args, entry.name) for entry in fields(ImageLimits)}
    )
    settings = Settings(
        ModelStore.of(args.project), args.project, roots=tuple(args.root),
        max_upload_bytes=args.max_upload_bytes, images=limits,
    )  # fmt: skip
    uvicorn.run(application(settings), host="127.0.0.1", port=args.port, access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
