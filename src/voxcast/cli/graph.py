"""The stage graph of a project, run by DVC as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from voxcast.errors import RunError

WAIT_S = 60.0  # for the stages to end after an interruption


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
        If a stage fails.
    KeyboardInterrupt
        If interrupted, after the processes have ended.
    """
    import dvc  # noqa: F401  # a missing extra is reported before anything is started

    # The stages start `python`: that of this installation, whether or not it is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = {"PATH": path, "DVC_NO_ANALYTICS": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", *arguments],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),  # the result alone goes to our output
        # DVC ignores an interruption while a stage runs, and leaves it to the stage. All of them
        # get ours, wherever it came from.
        process_group=0,
        # A shell without job control starts us in the background with this signal ignored.
        preexec_fn=_heed_interruptions,
    )
    try:
        status = process.wait()
    except KeyboardInterrupt:
        _interrupt(process)
        raise
    if status:
        raise RunError("a stage failed, for the reason above", "dvc repro", then)


def _heed_interruptions() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupt all processes of the group; kill those that do not end."""
    for signal_number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_S)
            return
