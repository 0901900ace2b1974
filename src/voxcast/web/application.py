"""The application: its routes, and the model that they share."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from voxcast import __version__
from voxcast.web import history, predictions, recommendations, request_sequences, sites
from voxcast.web.problems import add_problem_handlers
from voxcast.web.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from voxcast.web.settings import Settings


def application(settings: Settings) -> FastAPI:
    """Return the application of a service; it loads its model when it starts.

    ``app.state`` has ``settings`` and ``model``, the current `ServedModel`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.model = ServedModel.champion(settings)
        yield

    app = FastAPI(title="voxcast", version=__version__, lifespan=lifespan)
    app.state.settings = settings
    add_problem_handlers(app)
    for routes in (history, predictions, recommendations, request_sequences, sites):
        app.include_router(routes.router)
    return app
