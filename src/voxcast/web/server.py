"""The process of ``voxcast serve``: its settings, its limits of connections, and its log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from voxcast.log import PACKAGE, StderrHandler
from voxcast.serving.model_store import ModelStore
from voxcast.web.observation import JsonFormatter

GRACE_S = 5  # of running requests at the end
BACKLOG = 2048
MAX_CONNECTIONS = 512  # open ones; more are answered with 503
KEEP_ALIVE_S = 15

MAX_UPLOAD_BYTES = 2**29

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageLimits:
    """What reading the images of a service may take.

    Attributes
    ----------
    voxels : int
        Number that a header may declare; 2²⁸ are a cube of 645.
    memory_bytes : int
        Memory that reading one may allocate, beyond an idle reader.
    read_s : int
        Seconds in which one must be read.
    readers : int
        Processes that read images.
    images : int
        Images that are received, wait or are read at a time; more are answered with 503.
    """

    voxels: int = 2**28
    memory_bytes: int = 240_000_000
    read_s: int = 120
    readers: int = 2
    images: int = 16


@dataclass(frozen=True)
class Settings:
    """Where a service finds its model and images, and whom it answers.

    Attributes
    ----------
    store : ModelStore
        The versions of the model.
    project : Path, optional
        Project folder, for its clusters, policies and history.
    registry : str, optional
        Address of a registry of MLflow that others write to, whose champion is fetched.
    machines : Path, optional
        File with the speeds of machines, see `voxcast.serving.machines`.
    token : str, optional
        Sent by clients as ``Authorization: Bearer TOKEN``; None for no check.
    roots : tuple of Path
        Folders whose images may be named by their path.
    poll_s : float
        Time between two looks for another champion.
    hosts : tuple of str
        Names by which clients may call the service, without port; empty for any. A page of another
        site whose name was pointed at this machine is refused by it.
    max_upload_bytes : int
        Size of the largest request with an image.
    images : ImageLimits
        What reading an image may take.
    """

    store: ModelStore
    project: Path | None = None
    registry: str | None = None
    machines: Path | None = None
    token: str | None = field(default=None, repr=False)
    roots: tuple[Path, ...] = ()
    poll_s: float = 2.0
    hosts: tuple[str, ...] = ()
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    images: ImageLimits = ImageLimits()


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
