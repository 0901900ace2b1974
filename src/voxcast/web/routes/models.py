"""``GET /models``: the version that answers, its training data, and all versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from voxcast.errors import ModelError
from voxcast.web.json_answers import json_answer
from voxcast.web.served_model import ServedModel, served_model

if TYPE_CHECKING:
    from voxcast.serving.model_store import ModelStore
    from voxcast.serving.served_app import ServedApp
    from voxcast.web.model_switch import ModelSwitch

router = APIRouter()


class ModelsAnswer(BaseModel):
    """The model that answers.

    ``damaged`` are applications that are not served, and ``refused`` is a champion that cannot be
    loaded, each with the reason.
    """

    name: str
    version: str
    apps: dict[str, dict[str, Any]]
    damaged: dict[str, str]
    refused: dict[str, str]
    versions: list[dict[str, Any]]


@router.get("/models", response_model=ModelsAnswer)
async def models(request: Request) -> Response:
    """Return the applications of the model, and their training data."""
    served = served_model(request)
    state = request.app.state
    switch: ModelSwitch = state.switch
    versions = await asyncio.to_thread(_versions, state.settings.store)
    apps = {name: app_facts(served, name) for name in sorted(served.intact_apps)}
    return json_answer(
        {
            "name": "voxcast",
            "version": served.version,
            "apps": apps,
            "damaged": served.damaged,
            "refused": dict(switch.refused),
            "versions": versions,
        }
    )


def app_facts(served: ServedModel, name: str) -> dict[str, Any]:
    """Return the facts of an application as a form or a page needs them."""
    app: ServedApp = served.bundle.apps[name]
    promotion = app.promotion
    return {
        "parameters": app.parameters,
        "configurations": [
            {"device": c.device, "cpus": c.cpus, "gpus": c.gpus} for c in app.configurations
        ],
        "measured": app.measured,
        "characteristics": app.characteristics,
        "coarse_points": app.coarse_points,
        "network_points": served.predictions.network_points(app),
        "host_classes": app.host_classes,
        "app_version": promotion.app_version,
        "family": promotion.family,
        "subjects": promotion.subjects,
        "runs": promotion.runs,
        "calibrated": promotion.calibrated,
        "calibrated_at": promotion.promoted_at,
        "promoted_at": promotion.promoted_at,
        "reason": promotion.reason,
        "detail": promotion.detail,
        "ranges": _ranges(served, name),
    }


def _ranges(served: ServedModel, app: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of the features that an application's model learned from."""
    from voxcast.models.query import Query

    model = served.predictions.forecaster(app).model_at("volume").model
    return dict(model.ranges(Query({"app": app})))


def _versions(store: ModelStore) -> list[dict[str, Any]]:
    """Return the versions as ``voxcast models --json`` does; none if they cannot be read now."""
    try:
        return store.listed()
    except ModelError:
        return []
