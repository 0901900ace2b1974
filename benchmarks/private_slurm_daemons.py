"""Daemons of a private Slurm as processes with recorded ids, see `private_slurm`."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PIDS = "pids.json"
STOP_S = 10.0


@dataclass(frozen=True)
class Daemons:
    """Processes by name, whose ids are in a file of `folder`: whoever comes later can stop them.

    An id is that of a daemon only while its process was created when the daemon was.
    """

    folder: Path

    @property
    def is_recorded(self) -> bool:
        """Whether any were started and not stopped."""
        return (self.folder / PIDS).exists()

    def names(self) -> list[str]:
        """Return those that were started, the oldest first."""
        return list(self._pids())

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a daemon in a session of its own; its output goes to ``log/NAME.out``."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        created = psutil.Process(process.pid).create_time()
        self._record({**self._pids(), name: (process.pid, created)})

    def is_running(self, name: str) -> bool:
        """Whether a daemon was started and has not ended."""
        pid, created = self._pids().get(name, (0, 0.0))
        try:
            process = psutil.Process(pid)
            alive = process.status() != psutil.STATUS_ZOMBIE
            return pid > 0 and alive and process.create_time() == created
        except psutil.NoSuchProcess:
            return False

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Stop a daemon; with ``kill`` at once, as a crash does."""
        pid, created = self._pids().get(name, (0, 0.0))
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid) if pid else None
            if process is not None and process.create_time() == created:
                process.kill() if kill else process.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(STOP_S)
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    process.wait(STOP_S)
        self._record({n: entry for n, entry in self._pids().items() if n != name})

    def stop_all(self) -> None:
        """Stop all, the newest first."""
        for name in reversed(self.names()):
            self.stop(name)
        (self.folder / PIDS).unlink(missing_ok=True)

    def _pids(self) -> dict[str, tuple[int, float]]:
        path = self.folder / PIDS
        if not path.exists():
            return {}
        return {
            name: (pid, created) for name, (pid, created) in json.loads(path.read_text()).items()
        }

    def _record(self, pids: Mapping[str, tuple[int, float]]) -> None:
        (self.folder / PIDS).write_text(json.dumps(pids, indent=1))
