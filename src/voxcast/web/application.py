"""The application: its routes, and the model that they share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from voxcast import __version__
from voxcast.errors import ModelError
from voxcast.web import guards, images, observation, outcomes, overview, questions
from voxcast.web.batches import Batches
from voxcast.web.guards import PLACES
from voxcast.web.model_switch import ModelSwitch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from voxcast.web.server import Settings

PAGE = Path(__file__).with_name("page")
INDEX = "index.html"


def application(settings: Settings) -> FastAPI:
    """Return the application of a service; it loads its model when it starts.

    ``app.state`` has ``settings``, ``switch`` with the model, ``batches``, ``metrics``,
    ``readers``, the ``places`` of large bodies, the ``sizers`` of recurring tasks, and the cache
    of the ``history``.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if app.state.switch.champion is None:
            load_at_once(app)
        app.state.switch.start()
        yield
        await asyncio.to_thread(app.state.switch.stop)
        app.state.batches.close()

    app = FastAPI(
        title="voxcast",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # pages of documentation load scripts from another host
        redoc_url=None,
        strict_content_type=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # see `observation`
        responses={422: guards.SCHEMA, "default": guards.SCHEMA},
    )
    app.state.settings = settings
    app.state.switch = ModelSwitch(settings)
    app.state.metrics = observation.Metrics(app.state.switch)
    app.state.batches = Batches(app.state.metrics.rows.observe)
    app.state.history = {}
    app.state.sizers = None
    app.state.places = asyncio.Semaphore(PLACES)
    # The last one is the first that a request meets.
    if settings.hosts:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts, www_redirect=False)
    app.add_middleware(observation.Observation, metrics=app.state.metrics)
    guards.add_problem_handlers(app)
    app.include_router(images.router, max_body_size=settings.max_upload_bytes)
    for module in (questions, outcomes, overview, observation):
        app.include_router(module.router)
    app.include_router(overview.open_router)

    page = StaticFiles(directory=PAGE)
    app.mount("/page", page)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response(INDEX, request.scope)

    return app


def load_at_once(app: FastAPI) -> None:
    """Load the champion; one in a registry of MLflow, which takes seconds, is loaded later.

    Raises
    ------
    ModelError
        If no champion can be loaded.
    """
    switch: ModelSwitch = app.state.switch
    if switch.settings.registry is not None:
        return
    switch.look()
    if switch.champion is None:
        raise ModelError("; ".join(switch.refused.values()) or switch.problem)
