"""The stage graph of a project, run by DVC as a process of its own.

DVC as a process of ``voxcast learn``: it ends with its stages when that process is gone.

Locks of a project: one `voxcast learn` at a time, and none while DVC runs there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.files import process_lock

if TYPE_CHECKING:
    from collections.abc import Iterator


# Its imports can be interrupted without a traceback.
DVC = (
    "import voxcast.interruptions, sys\n"
    "from voxcast.graph import main\n"
    "sys.exit(main(sys.argv[1:]))"
)
OUTPUT_S = 1.0  # for the last lines; a process that a stage left behind may hold the pipe open
ADVICE = "Use `dvc push`"  # without remote storage


def reproduce(*arguments: str, then: str) -> None:
    """Run ``dvc repro`` in the current folder; an interruption ends all of its processes first.

    Parameters
    ----------
    arguments : str
        Arguments of ``dvc repro``.
    then : str
        Next step for the user if a stage fails.

    Raises
    ------
    RunError
        If a stage fails, or another DVC works in the project.
    KeyboardInterrupt
        If interrupted, after the processes have ended.
    """
    import dvc  # noqa: F401  # a missing extra is reported before anything is started

    # The stages start `python`: the one of this installation, whether or not it is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = {"PATH": path, "DVC_NO_ANALYTICS": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    process = subprocess.Popen(
        [sys.executable, "-c", DVC, str(os.getpid()), "repro", *arguments],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        # DVC ignores an interruption while a stage runs, and leaves it to the stage. All of them
        # get ours, wherever it came from.
        process_group=0,
        # A shell without job control starts us in the background with this signal ignored.
        preexec_fn=_heed_interruptions,
    )
    output = threading.Thread(target=_show, args=(process.stdout,), daemon=True)
    output.start()
    try:
        status = process.wait()
    except KeyboardInterrupt:
        _interrupt(process)
        raise
    finally:
        output.join(OUTPUT_S)
    if status == LOCKED:
        pid = process_of_stage(Path())
        name = "another `dvc`" if pid is None else f"another `dvc` (process {pid})"
        by_then = "when it is done run the same command again; nothing is lost"
        raise RunError(f"{name} works in this project", Path.cwd(), by_then)
    if status:
        raise RunError("a stage failed, for the reason above", "dvc repro", then)


def _heed_interruptions() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _show(output: IO[str]) -> None:
    """Print what DVC and its stages print; the result alone goes to our standard output."""
    with output:
        for line in output:
            if not line.startswith(ADVICE):
                print(line, end="", file=sys.stderr, flush=True)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """End all processes of the group, ever more firmly.

    A process that is just being started misses the first signal, and one that waits for its
    threads needs a firmer one.
    """
    for signal_number in ENDINGS:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
            return


# What ends the stages, and the time that each signal has: runs that are measured end first.
ENDINGS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PATIENCE_S = 5.0
LOOK_EVERY_S = 0.5
LOCKED = 75  # exit status where another DVC works in the project
INTERRUPTED = ("exited with -2", "exited with 130")


def main(arguments: list[str]) -> int:
    """Run ``dvc`` with the arguments after the first, which is the process that started it."""
    import dvc.cli
    import dvc.cli.parser
    import dvc.commands.repro
    import dvc.repo.open_repo

    parent, *rest = arguments
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    errors = _Errors()
    for handler in logging.getLogger("dvc").handlers:
        handler.addFilter(errors)
    status = int(dvc.cli.main(rest))
    return LOCKED if errors.locked else status


class _Errors(logging.Filter):
    """Leaves out interruptions, and the advice to delete a lock in use."""

    locked = False

    def filter(self, record: logging.LogRecord) -> bool:
        from dvc.lock import LockError

        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            if isinstance(error, LockError):
                self.locked = True
                return False
            if str(error).endswith(INTERRUPTED):
                return False
            error = error.__cause__
        return True


def _end_with(parent: int) -> None:
    """Interrupt all processes of the group, ever more firmly, once ``parent`` was killed."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    for signal_number in ENDINGS:
        os.killpg(0, signal_number)
        time.sleep(PATIENCE_S)


DVC_FOLDER = Path(".dvc/tmp")  # git and DVC leave it alone
LEARNING = "voxcast-learn.lock"
DVC_LOCK, DVC_STAGES = "lock", "rwlock"
LOCK_PATIENCE_S = (
    2.0  # DVC holds its lock for a moment at the end of each stage, and in `dvc status`
)


@contextlib.contextmanager
def learning_lock(project: Path) -> Iterator[None]:
    """Hold the lock of learning in a project.

    Raises
    ------
    RunError
        If another `voxcast learn` holds it, or the project cannot be written.
    """
    with contextlib.ExitStack() as stack:
        _take(stack, project, LEARNING, "another `voxcast learn`")
        yield


@contextlib.contextmanager
def dvc_lock(project: Path) -> Iterator[None]:
    """Hold the lock of DVC in a project; DVC waits some seconds for it and then refuses to start.

    Raises
    ------
    RunError
        If DVC is running there, or the project cannot be written.
    """
    with contextlib.ExitStack() as stack:
        _take(stack, project, DVC_LOCK, "DVC", LOCK_PATIENCE_S)
        # DVC releases the lock while a stage runs, and lists the process in another file.
        if pid := process_of_stage(project):
            reason = f"DVC (process {pid}) works here"
            raise RunError(reason, project.resolve(), "wait for it, or stop it")
        yield


def _take(
    stack: contextlib.ExitStack, project: Path, name: str, holder: str, patience_s: float = 0.0
) -> None:
    try:
        lock = process_lock(project / DVC_FOLDER / name, holder, project.resolve(), patience_s)
        stack.enter_context(lock)
    except OSError as error:
        where = error.filename or project
        raise RunError(f"cannot be written ({error.strerror})", where) from None


def process_of_stage(project: Path) -> str | None:
    """Return the living process that reads or writes for a stage of DVC; None without one."""
    path = project / DVC_FOLDER / DVC_STAGES
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # no stage ever ran here
    writers = list(listed.get("write", {}).values())
    readers = [entry for entries in listed.get("read", {}).values() for entry in entries]
    pids = (str(entry["pid"]) for entry in [*writers, *readers])
    return next((pid for pid in pids if Path("/proc", pid).exists()), None)
