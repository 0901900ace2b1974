"""The processes of ``voxcast serve``: one that answers, or one that starts several that do.

A signal to the command ends all of them, and so does its death.
"""

from __future__ import annotations

import functools
import logging
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

from voxcast.errors import EXIT_BAD_INPUT, ModelError, one_line
from voxcast.log import PACKAGE, StderrHandler
from voxcast.measure.processes import end_with
from voxcast.web.observation import JsonFormatter

if TYPE_CHECKING:
    from socket import socket

    from uvicorn import Config

    from voxcast.web.settings import Settings

GRACE_S = 5  # of running requests at the end
BACKLOG = 2048
MAX_CONNECTIONS = 512  # open ones; more are answered with 503
KEEP_ALIVE_S = 15
OPEN_FILES = 4096

logger = logging.getLogger(__name__)


def serve(settings: Settings, host: str, port: int, workers: int = 1) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; return the exit code.

    Parameters
    ----------
    settings : Settings
        The model, the project, and the limits.
    host, port : str, int
        Where it listens.
    workers : int
        Number of processes, each with its own model, metrics and limits.

    Raises
    ------
    ModelError
        If the model of a project's registry cannot be loaded.
    """
    import uvicorn
    from uvicorn.config import STARTUP_FAILURE

    log_in_json()
    _allow_open_files(OPEN_FILES)
    config = uvicorn.Config(
        functools.partial(_application, settings, os.getpid()),
        factory=True,
        host=host,
        port=port,
        workers=workers,
        http="httptools",
        ws="none",
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    logger.info("serves on http://%s:%d", f"[{host}]" if ":" in host else host, port)
    if workers == 1:
        config.load()  # here a model that cannot be loaded ends in one line
        uvicorn.Server(config).run()
        return 0
    return EXIT_BAD_INPUT if STARTUP_FAILURE in _run_workers(config) else 0


def _allow_open_files(number: int) -> None:
    """Allow a number of open files if the system does; most shells allow 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        most = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _run_workers(config: Config) -> set[int | None]:
    """Serve with several processes; return their exit codes."""
    from uvicorn.supervisors import Multiprocess

    class Workers(Multiprocess):
        """Workers that end at a hang-up too, where uvicorn would replace them."""

        def handle_hup(self) -> None:
            self.should_exit.set()

    under_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    sockets: list[socket] = [config.bind_socket()]
    workers = Workers(config, sockets=sockets)
    if under_nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    workers.run()
    return {process.exitcode for process in workers.processes}


def _application(settings: Settings, parent: int) -> Any:
    """Return the application of one process, which ends with the process that started it."""
    from uvicorn.config import STARTUP_FAILURE

    from voxcast.web.application import application, load_at_once

    in_worker = parent != os.getpid()
    if in_worker:
        log_in_json()
        end_with(parent)
    app = application(settings)
    try:
        load_at_once(app)
    except ModelError as error:
        if not in_worker:
            raise
        logger.error("%s", one_line(error))  # a line, without traceback
        sys.exit(STARTUP_FAILURE)  # others would fail too: the first process then ends
    return app


def log_in_json() -> None:
    """Write all messages of this process to stderr, one line of JSON each."""
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter())
    levels = {PACKAGE: logging.INFO, "uvicorn": logging.WARNING, "python_multipart": logging.ERROR}
    for name, level in levels.items():
        package = logging.getLogger(name)
        package.handlers, package.propagate = [handler], False
        package.setLevel(level)
