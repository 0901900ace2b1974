"""The stage graph of a project, run by DVC as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from voxcast.cli.dvc_process import ENDINGS, LOCKED, PATIENCE_S
from voxcast.cli.project_locks import process_of_stage
from voxcast.errors import RunError

# Its imports can be interrupted without a traceback.
DVC = (
    "import voxcast.interruptions, sys\n"
    "from voxcast.cli.dvc_process import main\n"
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
