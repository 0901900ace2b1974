"""``POST /predict``: quantiles of every target for an image, in each allocation; or for rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.responses import Response

from voxcast.errors import ModelError, RowError
from voxcast.serving.rows.request_rows import MAX_CPUS
from voxcast.serving.rows.typed_rows import typed_rows
from voxcast.web.json_answers import json_answer
from voxcast.web.question_schema import QUESTION_PROBLEMS, body_of, json_body
from voxcast.web.questions import ImageQuestion, question
from voxcast.web.row_schema import row_schema
from voxcast.web.served_model import served_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.web.batches import Batches
    from voxcast.web.json_bodies import BulkBodies

router = APIRouter()

MAX_CONFIGURATIONS = 64
MAX_ROWS = 20_000
MAX_EXPLAINED = 500  # rows; an explanation costs several predictions


class Allocation(BaseModel):
    """Device, CPUs and GPUs that a question is about."""

    model_config = ConfigDict(extra="forbid")

    device: str = "cpu"
    cpus: int = Field(1, ge=1, le=MAX_CPUS)
    gpus: int = Field(0, ge=0, le=MAX_CPUS)


class PredictQuestion(ImageQuestion):
    """A question for predictions."""

    configurations: list[Allocation] | None = Field(
        None,
        min_length=1,
        max_length=MAX_CONFIGURATIONS,
        description="allocations; by default those that were measured",
    )
    quantile: float = Field(0.95, gt=0.5, lt=1, description="probability of the upper bounds")
    explain: bool = Field(False, description="add what changed the runtime most")


class RowsQuestion(BaseModel):
    """Rows of the model's signature, each with its allocation."""

    model_config = ConfigDict(extra="forbid")

    rows: list[Annotated[dict[str, Any], WithJsonSchema(row_schema())]] = Field(
        min_length=1, max_length=MAX_ROWS
    )
    quantile: float = Field(0.95, gt=0.5, lt=1, description="probability of the upper bounds")
    explain: bool = Field(False, description="add what changed the runtime most")


class PredictAnswer(BaseModel):
    """Predictions, one for each allocation or row."""

    model_version: str
    predictions: list[dict[str, Any]]


async def predict_image(
    request: Request, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
) -> list[dict[str, Any]]:
    """Return predictions of one image; its rows are ours, so an error names no row.

    Raises
    ------
    ModelError
        If the question is refused.
    """
    try:
        return await predict_rows(request, rows, quantile, explain=explain)
    except RowError as error:
        raise ModelError(str(error.reason)) from None


async def predict_rows(
    request: Request, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
) -> list[dict[str, Any]]:
    """Return a prediction for each row of the model's signature, in common calls of requests.

    Raises
    ------
    ModelError
        If a row is refused.
    """
    served = served_model(request)
    if explain and len(rows) > MAX_EXPLAINED:
        raise ModelError(f"at most {MAX_EXPLAINED} rows are explained at a time", "explain")
    lab = served.bundle.lab_characteristics
    if len(rows) <= MAX_CONFIGURATIONS:
        typed = typed_rows(rows, lab)
    else:
        typed = await asyncio.to_thread(typed_rows, rows, lab)
    batches: Batches = request.app.state.batches
    return await batches.predict(served, typed, quantile, explain=explain)


@router.post(
    "/predict", response_model=PredictAnswer,
    openapi_extra=body_of(PredictQuestion), responses=QUESTION_PROBLEMS,
)  # fmt: skip
async def predict(request: Request) -> Response:
    """Predict runtime, CPU time and memory of an image, in each allocation."""
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
    predictions = await predict_image(request, rows, query.quantile, explain=query.explain)
    return json_answer({"model_version": served.version, "predictions": predictions})


@router.post(
    "/predict/batch", response_model=PredictAnswer,
    openapi_extra=json_body(RowsQuestion), responses=QUESTION_PROBLEMS,
)  # fmt: skip
async def predict_batch(request: Request) -> Response:
    """Predict many rows, in order; a row that is refused is named, and no other is answered."""
    bulk: BulkBodies = request.app.state.bulk
    async with bulk.content(request, _rows_question) as query:
        predictions = await predict_rows(
            request, query.rows, query.quantile, explain=query.explain
        )
        return json_answer(
            {"model_version": served_model(request).version, "predictions": predictions}
        )


def _rows_question(body: bytes) -> RowsQuestion:
    try:
        return RowsQuestion.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
