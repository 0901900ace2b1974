"""``POST /predict``: quantiles of every target for an image, in each allocation."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from voxcast.web.questions import ImageQuestion, question
from voxcast.web.served_model import served_model

router = APIRouter()


class Allocation(BaseModel):
    """Device, CPUs and GPUs that a question is about."""

    model_config = ConfigDict(extra="forbid")

    device: str = "cpu"
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)


class PredictQuestion(ImageQuestion):
    """A question for predictions."""

    configurations: list[Allocation] | None = Field(
        None, description="allocations; by default those that were measured"
    )
    quantile: float = Field(0.95, gt=0.5, lt=1, description="probability of the upper bounds")
    explain: bool = Field(False, description="add what changed the runtime most")


class PredictAnswer(BaseModel):
    """Predictions, one for each allocation."""

    model_version: str
    predictions: list[dict[str, Any]]


async def predict_rows(
    request: Request, rows: list[dict[str, Any]], quantile: float, *, explain: bool = False
) -> list[dict[str, Any]]:
    """Return a prediction for each row of the model's signature.

    Raises
    ------
    ModelError
        If a row is refused.
    """
    served = served_model(request)
    return await asyncio.to_thread(served.predictions.predict, rows, quantile, explain=explain)


@router.post("/predict")
async def predict(request: Request) -> PredictAnswer:
    """Predict runtime, CPU time and memory of an image."""
    query = await question(request, PredictQuestion)
    served = served_model(request)
    row = query.request_row()
    allocations = query.configurations or [
        Allocation(device=c.device, cpus=c.cpus, gpus=c.gpus)
        for c in served.bundle.app_named(query.app).configurations
    ]
    rows = [
        {**row, "device": a.device, "cpus": float(a.cpus), "gpus": float(a.gpus)}
        for a in allocations
    ]
    predictions = await predict_rows(request, rows, query.quantile, explain=query.explain)
    return PredictAnswer(model_version=served.version, predictions=predictions)
