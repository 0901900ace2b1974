"""``POST /requests``: the first request for an image, and the next after each failure."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, model_validator

from voxcast.web.question_schema import QUESTION_PROBLEMS, body_of
from voxcast.web.questions import ImageQuestion, question
from voxcast.web.routes.predictions import Allocation, predict_image
from voxcast.web.served_model import served_model

if TYPE_CHECKING:
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.requests.per_image import PredictedRuntime

# All strategies take 1.2 s of a core, so that predictions share it with one question at most.
_THREAD = ThreadPoolExecutor(1, "sequences")

router = APIRouter()

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SequenceQuestion(ImageQuestion):
    """A question for sequences of requests; a request of W s, used for u, costs αW + βu + γ."""

    configuration: Allocation | None = Field(
        None, description="allocation; by default the first of the application"
    )
    alpha: float = Field(1.0, gt=0, allow_inf_nan=False, description="price of requested time")
    beta: Price = Field(0.0, description="price of used time")
    gamma: Price = Field(0.0, description="price of each request")
    checkpoint_s: Price | None = Field(None, description="duration of writing a checkpoint")
    restart_s: Price | None = Field(None, description="duration of a restart")
    strategy: str = Field("all", description="one of the answer's strategies, or `all`")

    @model_validator(mode="after")
    def _check(self) -> Self:
        from voxcast.allocation.requests.strategies import ALL, STRATEGIES

        if self.strategy not in (ALL, *STRATEGIES):
            names = ", ".join((ALL, *STRATEGIES))
            raise ValueError(f"strategy: unknown; choose from {names}")
        if (self.checkpoint_s is None) != (self.restart_s is None):
            raise ValueError("checkpoint_s and restart_s must be given together")
        if self.strategy != ALL and STRATEGIES[self.strategy].checkpoints > self.can_checkpoint:
            raise ValueError(f"{self.strategy} needs checkpoint_s and restart_s")
        return self

    @property
    def can_checkpoint(self) -> bool:
        """Whether the job can write a checkpoint."""
        return self.checkpoint_s is not None

    @property
    def cost(self) -> CostModel:
        """The prices."""
        from voxcast.allocation.requests.cost import CostModel

        checkpoint_s, restart_s = self.checkpoint_s or 0.0, self.restart_s or 0.0
        return CostModel(self.alpha, self.beta, self.gamma, checkpoint_s, restart_s)


class CheckpointRequest(BaseModel):
    """A request of a strategy with checkpoints; all in seconds of work."""

    request: float = Field(description="length, with restart and checkpoint")
    milestone: float = Field(description="work completed at its end")
    checkpoint: bool = Field(description="whether it ends with a checkpoint")


class SequenceAnswer(BaseModel):
    """The requests of a strategy, made one after the other until one suffices."""

    strategy: str
    meaning: str
    sequence: list[float] | list[CheckpointRequest] = Field(description="lengths in seconds")
    expected_cost: float
    normalised_cost: float = Field(description="over that of knowing the runtime beforehand")
    notes: list[str]


class SequencesAnswer(BaseModel):
    """Sequences, the cheapest first."""

    model_version: str
    app: str
    host: str = Field(description="the machine whose times these are; empty if none is told apart")
    sequences: list[SequenceAnswer]
    knots: list[tuple[float, float]] = Field(
        description="probabilities and runtimes in seconds of the predicted distribution"
    )
    notes: list[str] = Field(description="what was not known, and which strategies cannot work")
    need_checkpoints: list[str] = Field(
        description="strategies that are left out without `checkpoint_s` and `restart_s`"
    )


@router.post(
    "/requests", summary="Compute sequences of requests for an image",
    openapi_extra=body_of(SequenceQuestion), responses=QUESTION_PROBLEMS,
)  # fmt: skip
async def request_sequences(request: Request) -> SequencesAnswer:
    """Predict the distribution of the runtime, and compute the first request, and the next ones.

    Like the bounds of the model it is for the longest run of a subject, slightly wider than that
    of a single run.
    """
    query = await question(request, SequenceQuestion)

    predicted = await _runtime(request, query)
    content = await asyncio.get_running_loop().run_in_executor(_THREAD, _content, predicted, query)
    return SequencesAnswer(model_version=served_model(request).version, **content)


async def _runtime(request: Request, query: SequenceQuestion) -> PredictedRuntime:
    from voxcast.allocation.requests.per_image import QUANTILES, PredictedRuntime

    row = query.request_row()
    app = served_model(request).bundle.app_named(
        None if row.get("app") is None else str(row["app"])
    )
    allocation = query.configuration or app.configurations[0]
    row |= {
        "device": allocation.device,
        "cpus": float(allocation.cpus),
        "gpus": float(allocation.gpus),
    }
    answers = await asyncio.gather(*(predict_image(request, [row], q) for q in QUANTILES))
    return PredictedRuntime.of(
        {quantile: rows[0] for quantile, rows in zip(QUANTILES, answers, strict=True)}
    )


def _content(predicted: PredictedRuntime, query: SequenceQuestion) -> dict[str, Any]:
    from voxcast.allocation.requests.strategies import (
        ALL,
        CHECKPOINTING,
        STRATEGIES,
        Settings,
        alternatives,
    )
    from voxcast.quantities import format_seconds

    sequences, refused = alternatives(
        query.strategy,
        predicted.law,
        query.cost,
        Settings(format_length=format_seconds),
        can_checkpoint=query.can_checkpoint,
    )
    notes = [*predicted.notes, *(f"skipped: {reason}" for reason in refused)]
    cheapest_first = sorted(sequences, key=lambda sequence: sequence.expected_cost)
    return {
        "app": str(predicted.prediction["app"]),
        "host": str(predicted.prediction.get("host") or ""),
        "sequences": [
            {**s.as_json(), "meaning": STRATEGIES[s.strategy].meaning} for s in cheapest_first
        ],
        "knots": predicted.knots,
        "notes": notes,
        "need_checkpoints": [] if query.can_checkpoint or query.strategy != ALL else CHECKPOINTING,
    }
