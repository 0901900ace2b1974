"""The HTTP server of one model, in MLflow's protocol; all of its processes end together.

``voxcast serve`` becomes this process, so a signal to the command is a signal to the server. With
several workers this process starts them, passes the end on to them, and they end when it is
killed. Its command line names the model and its version, see `served_version`.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import EXIT_BAD_INPUT, ModelError, exits_cleanly, one_line
from voxcast.serving.request_bodies import CheckedBodies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uvicorn import Config

MODULE = "voxcast.serving.http_server"
MODEL_VARIABLE, PARENT_VARIABLE = "VOXCAST_SERVED_MODEL", "VOXCAST_SERVER_PID"
GRACE_S = 5  # of running requests at the end
_PR_SET_PDEATHSIG = 1

logger = logging.getLogger(__name__)


def command(model: str, version: str, host: str, port: int, workers: int) -> list[str]:
    """Return the command line of a server.

    Parameters
    ----------
    model : str
        Address of the model as MLflow reads it: a folder, or ``models:/NAME/VERSION``.
    version : str
        Its version, which others can read in the command line.
    """
    # -P: no module is taken from the current folder.
    return [
        sys.executable, "-P", "-m", MODULE, "--model", model, "--version", version,
        "--host", host, "--port", str(port), "--workers", str(workers),
    ]  # fmt: skip


def served_version(command: Sequence[str]) -> str | None:
    """Return the version that a server with this command line serves; None if it is no server."""
    words = list(command)
    if MODULE not in words or "--version" not in words[:-1]:
        return None
    return words[words.index("--version") + 1]


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args(argv)
    import uvicorn
    from uvicorn.config import STARTUP_FAILURE

    os.environ[MODEL_VARIABLE] = args.model
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    config = uvicorn.Config(
        f"{MODULE}:application",
        factory=True,
        host=args.host,
        port=args.port,
        workers=args.workers,
        timeout_graceful_shutdown=GRACE_S,
    )
    logger.info("serving version %s on http://%s:%d", args.version, args.host, args.port)
    if args.workers == 1:
        config.load()  # here a model that cannot be read ends in one line
        uvicorn.Server(config).run()
        return 0
    return EXIT_BAD_INPUT if STARTUP_FAILURE in _run_workers(config) else 0


def _run_workers(config: Config) -> set[int | None]:
    """Serve with several processes; return their exit codes."""
    from uvicorn.supervisors import Multiprocess

    class Workers(Multiprocess):
        """Workers that end at a hang-up too, where uvicorn would replace them."""

        def handle_hup(self) -> None:
            self.should_exit.set()

    under_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    workers = Workers(config, sockets=[config.bind_socket()])
    if under_nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    workers.run()
    return {process.exitcode for process in workers.processes}


def application() -> Any:
    """Return the application of one process, which ends with the process that started it."""
    from uvicorn.config import STARTUP_FAILURE

    in_worker = int(os.environ[PARENT_VARIABLE]) != os.getpid()
    if in_worker:
        _end_with(int(os.environ[PARENT_VARIABLE]))
    try:
        return _application(os.environ[MODEL_VARIABLE])
    except ModelError as error:
        if not in_worker:
            raise
        print(f"voxcast: {one_line(error)}", file=sys.stderr)
        sys.exit(STARTUP_FAILURE)  # others would fail too: the first process then ends


def _end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it was killed before prctl


def _application(model: str) -> Any:
    import mlflow
    from mlflow.pyfunc import scoring_server

    from voxcast.serving.installed_model import installed_model

    try:
        # Not mlflow.pyfunc.load_model, which runs the code in the folder.
        loaded = installed_model(Path(model) if Path(model).is_dir() else _downloaded(model))
        params = loaded.metadata.get_params_schema()
        names = () if params is None else tuple(param.name for param in params)
        return CheckedBodies(scoring_server.init(loaded), names)
    except (mlflow.MlflowException, OSError, ImportError) as error:
        raise ModelError(f"cannot be served: {one_line(error)}", model) from error


def _downloaded(address: str) -> Path:
    """Download a version by its address ``models:/NAME/VERSION``, and check its files."""
    import mlflow
    from mlflow.artifacts import download_artifacts

    from voxcast.serving.registered_files import verify_files

    name, number = address.removeprefix("models:/").split("/")
    folder = Path(download_artifacts(address))
    verify_files(folder, dict(mlflow.MlflowClient().get_model_version(name, number).tags))
    return folder


if __name__ == "__main__":
    sys.exit(main())
