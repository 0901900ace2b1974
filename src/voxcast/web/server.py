"""The process of ``voxcast serve``: its limits of connections, and its log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from voxcast.log import PACKAGE, StderrHandler
from voxcast.web.observation import JsonFormatter

if TYPE_CHECKING:
    from voxcast.web.settings import Settings

GRACE_S = 5  # of running requests at the end
BACKLOG = 2048
MAX_CONNECTIONS = 512  # open ones; more are answered with 503
KEEP_ALIVE_S = 15

logger = logging.getLogger(__name__)


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    settings : Settings
        The model, the project, and the limits.
    host, port : str, int
        Where it listens.

    Raises
    ------
    ModelError
        If the model of a project's registry cannot be loaded.
    """
    import uvicorn

    from voxcast.web.application import application, load_at_once

    log_in_json()
    app = application(settings)
    load_at_once(app)  # here a model that cannot be loaded ends in one line
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
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
    uvicorn.Server(config).run()


def log_in_json() -> None:
    """Write all messages of this process to stderr, one line of JSON each."""
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter())
    levels = {PACKAGE: logging.INFO, "uvicorn": logging.WARNING, "python_multipart": logging.ERROR}
    for name, level in levels.items():
        package = logging.getLogger(name)
        package.handlers, package.propagate = [handler], False
        package.setLevel(level)
