"""``GET /health``: whether the service lives, whether it has a model, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from voxcast.web.json_answers import json_answer

if TYPE_CHECKING:
    from voxcast.web.model_switch import ModelSwitch

router = APIRouter()


class Health(BaseModel):
    """The state of the service.

    ``refused`` is a champion that cannot be served; ``registry`` tells
    whether the registry could be read last time. The log has the reasons.
    """

    live: bool
    ready: bool
    model_version: str | None
    switches: int
    refused: list[str]
    registry: bool


@router.get("/health/live", response_class=Response)
async def live() -> Response:
    """Tell that the process answers."""
    return json_answer({"live": True})


@router.get("/health/ready", response_class=Response, responses={503: {"description": "no model"}})
async def ready(request: Request) -> Response:
    """Tell whether a model is loaded."""
    is_ready = request.app.state.model is not None
    headers = {} if is_ready else {"Retry-After": "1"}
    return json_answer({"ready": is_ready}, 200 if is_ready else 503, headers)


@router.get("/health")
async def health(request: Request) -> Health:
    """Tell both, and the versions."""
    switch: ModelSwitch = request.app.state.switch
    return Health(
        live=True,
        ready=switch.champion is not None,
        model_version=None if switch.champion is None else switch.champion.version,
        switches=switch.switches,
        refused=sorted(switch.refused),
        registry=not switch.problem,
    )
