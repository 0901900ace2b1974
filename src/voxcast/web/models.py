"""``GET /models``: the version that answers, its training data; ``GET /health``: its state."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from voxcast.errors import ModelError
from voxcast.web.guards import json_answer, served_model, service_router

if TYPE_CHECKING:
    from voxcast.serving.model_store import ModelStore
    from voxcast.web.model_switch import ModelSwitch, ServedModel

router = service_router()
open_router = APIRouter()  # of routes that need neither a token nor a model


@router.get("/models", response_model=dict[str, Any])
async def models(request: Request) -> Response:
    """Return the applications of the model, their training data, and all versions.

    ``refused`` is a champion that cannot be loaded, with the reason.
    """
    served, state = served_model(request), request.app.state
    return json_answer(
        {
            "name": "voxcast",
            "version": served.version,
            "apps": {name: _facts(served, name) for name in sorted(served.bundle.apps)},
            "refused": dict(state.switch.refused),
            "versions": await asyncio.to_thread(_versions, state.settings.store),
        }
    )


def _facts(served: ServedModel, name: str) -> dict[str, Any]:
    """Return the facts of an application as a form or a page needs them."""
    app = served.bundle.apps[name]
    model = served.predictions.forecaster(name).model_at("volume").model
    facts = app.to_json()
    promotion = facts.pop("promotion")
    for hidden in ("forecaster_sha256", "trained_on_sha256"):
        del facts[hidden]
    return {
        **facts,
        "configurations": [
            {"device": c.device, "cpus": c.cpus, "gpus": c.gpus} for c in app.configurations
        ],
        "network_points": served.predictions.network_points(app),
        **app.promotion.summary(),
        "app_version": promotion["app_version"],
        "calibrated_at": promotion["promoted_at"],
        "detail": promotion["detail"],
        "ranges": dict(model.range.numbers),
    }


def _versions(store: ModelStore) -> list[dict[str, Any]]:
    """Return the versions as ``voxcast models --json`` does; none if they cannot be read now."""
    try:
        return store.listed()
    except ModelError:
        return []


@open_router.get("/health/live", response_class=Response)
async def live() -> Response:
    """Tell that the process answers."""
    return json_answer({"live": True})


@open_router.get("/health/ready", response_class=Response)
async def ready(request: Request) -> Response:
    """Tell whether a model is loaded."""
    if request.app.state.switch.champion is not None:
        return json_answer({"ready": True})
    return json_answer({"ready": False}, 503, {"Retry-After": "1"})


@open_router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Tell both, the version that answers, and whether the registry could be read last time.

    ``refused`` is a champion that cannot be served. The log has the reasons.
    """
    switch: ModelSwitch = request.app.state.switch
    return {
        "live": True,
        "ready": switch.champion is not None,
        "model_version": None if switch.champion is None else switch.champion.version,
        "switches": switch.switches,
        "refused": sorted(switch.refused),
        "registry": not switch.problem,
    }


@open_router.get("/ping", include_in_schema=False)
async def ping() -> Response:
    """Tell that the server answers, in MLflow's protocol."""
    return Response("\n")
