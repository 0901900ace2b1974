"""The application: its routes, and the model that they share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from voxcast import __version__
from voxcast.errors import ModelError
from voxcast.web.batches import Batches
from voxcast.web.guards.access import Access
from voxcast.web.guards.limited_bodies import LimitedBodies
from voxcast.web.guards.request_log import RequestLog
from voxcast.web.images.image_paths import AllowedFolders
from voxcast.web.json_bodies import BulkBodies
from voxcast.web.model_switch import ModelSwitch
from voxcast.web.problems import add_problem_handlers
from voxcast.web.question_schema import ANY_PROBLEM
from voxcast.web.routes import (
    characteristics,
    health,
    history,
    invocations,
    metrics,
    models,
    page,
    predictions,
    recommendations,
    request_sequences,
    sites,
)
from voxcast.web.routes.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from voxcast.web.served_model import ServedModel
    from voxcast.web.settings import Settings

ROUTERS = tuple(
    module.router
    for module in (
        characteristics, predictions, recommendations, request_sequences, sites, history,
        models, health, metrics, invocations, page,
    )
)  # fmt: skip


def application(settings: Settings) -> FastAPI:
    """Return the application of a service; it loads its model when it starts.

    ``app.state`` has ``settings``, ``model`` (the current `ServedModel`, None before there is
    one), ``switch``, ``batches``, ``bulk``, ``roots``
    and ``metrics``.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        switch: ModelSwitch = app.state.switch
        if app.state.model is None:
            load_at_once(app)
        switch.start()
        yield
        await asyncio.to_thread(switch.stop)
        app.state.batches.close()

    # Without the pages of documentation, which load scripts from another host.
    app = FastAPI(
        title="voxcast",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=ANY_PROBLEM,
    )

    def serve(model: ServedModel) -> None:
        app.state.model = model

    app.state.settings = settings
    app.state.model = None
    app.state.switch = ModelSwitch(settings, serve)
    app.state.metrics = Metrics()
    app.state.roots = AllowedFolders.of(settings.roots)
    app.state.bulk = BulkBodies()
    app.state.batches = Batches(app.state.metrics.observe_rows)
    # The last one is the first that a request meets.
    app.add_middleware(LimitedBodies, settings=settings)
    app.add_middleware(Access, settings=settings)
    app.add_middleware(RequestLog, metrics=app.state.metrics)
    add_problem_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


def load_at_once(app: FastAPI) -> None:
    """Load the champion; one in a registry of MLflow, which takes seconds, is loaded later.

    Raises
    ------
    ModelError
        If no champion can be loaded.
    """
    settings: Settings = app.state.settings
    if settings.registry is not None:
        return
    switch: ModelSwitch = app.state.switch
    switch.look()
    if switch.champion is None:
        raise ModelError("; ".join(switch.refused.values()) or switch.problem)
