"""``POST /recommend``: the request for an image; ``POST /requests``: and after a failure."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Self

from fastapi import Request
from pydantic import Field, model_validator

from voxcast.allocation.offers import HardLimits, seconds_until
from voxcast.allocation.recommendation import ImagePredictions
from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import QUANTILES, PredictedRuntime
from voxcast.allocation.requests.strategies import (
    ALL,
    CHECKPOINTING,
    STRATEGIES,
    Settings,
    alternatives,
)
from voxcast.jobs.script import command_script
from voxcast.quantities import format_seconds
from voxcast.serving.champion import allocation_columns
from voxcast.serving.site_candidates import SiteCandidates
from voxcast.web.guards import served_model, service_router
from voxcast.web.overview import site_of
from voxcast.web.predictions import Allocation, Allocations, RowQuestion, predict_rows

# All strategies take 1.2 s of a core, so that predictions share it with one question at most.
_THREAD = ThreadPoolExecutor(1, "sequences")

router = service_router()

Name = Annotated[str, Field(max_length=100)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RecommendQuestion(RowQuestion):
    """A question for a recommendation."""

    cluster: Name | None = Field(
        None, description="as listed by `GET /sites`; `local` is the machine of the service"
    )
    policy: Name | None = Field(
        None, description="how much risk is accepted, and what time is worth"
    )
    deadline: Name | None = Field(
        None, description="finish within this duration, or by this time in ISO 8601",
        examples=["2h", "2030-01-31T18:00"],
    )  # fmt: skip
    budget_usd: Price | None = Field(None, description="maximum cost", examples=[0.05])
    partition: Name | None = Field(None, description="use this partition only")
    configurations: Allocations | None = Field(
        None, description="allocations to choose from; by default those of the application"
    )


class RequestsQuestion(RowQuestion):
    """A question for sequences of requests; a request of W s, used for u, costs αW + βu + γ."""

    configuration: Allocation | None = Field(
        None, description="allocation; by default the first of the application"
    )
    alpha: float = Field(1.0, gt=0, allow_inf_nan=False, description="price of requested time")
    beta: Price = Field(0.0, description="price of used time")
    gamma: Price = Field(0.0, description="price of each request")
    checkpoint_s: Price | None = Field(None, description="duration of writing a checkpoint")
    restart_s: Price | None = Field(None, description="duration of a restart")
    strategy: str = Field(ALL, description="one of the answer's strategies, or `all`")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.strategy not in (ALL, *STRATEGIES):
            names = ", ".join((ALL, *STRATEGIES))
            raise ValueError(f"strategy: unknown; choose from {names}")
        if (self.checkpoint_s is None) != (self.restart_s is None):
            raise ValueError("checkpoint_s and restart_s must be given together")
        if self.strategy in CHECKPOINTING and self.checkpoint_s is None:
            raise ValueError(f"{self.strategy} needs checkpoint_s and restart_s")
        return self


@router.post("/recommend", summary="Recommend a request for an image")
async def recommend(request: Request, question: RecommendQuestion) -> dict[str, Any]:
    """Assess every configuration on the nodes of a cluster, and recommend a request.

    Limits are at the confidence of the policy. With a deadline the cheapest configuration within
    it is chosen, with a budget the fastest; else cost and time are weighed by the policy.
    """
    deadline_s = None if question.deadline is None else seconds_until(question.deadline)
    limits = HardLimits(deadline_s, question.budget_usd)
    site = await site_of(request, question.cluster, question.policy)
    served, row, policy = served_model(request), question.complete(question.row), site.policy
    app = served.bundle.app_named(row.get("app"))
    configurations = app.configurations
    if question.configurations is not None:
        configurations = [allocation.configuration() for allocation in question.configurations]
    # In a thread, since this machine is looked at where it is the cluster.
    candidates = await asyncio.to_thread(
        SiteCandidates.of, site.cluster, configurations, app.host_classes,
        partition=question.partition, host=row.get("host"),
    )  # fmt: skip
    rows = candidates.rows(row)
    predictions = candidates.by_candidate(
        await predict_rows(request, rows, policy.confidence, names_rows=False)
    )
    recommendation = await asyncio.to_thread(
        candidates.recommendation, policy, limits, [ImagePredictions("", predictions)],
        app.host_classes, app.measured, question.parameters,
    )  # fmt: skip
    choice = recommendation.offers.choice
    column = max(int(choice.chosen[0]), int(choice.nearest[0]), 0)
    explained = candidates.by_candidate(rows)[column]
    (reasons,) = await predict_rows(request, [explained], policy.confidence, explain=True)
    content = recommendation.as_json()
    (image,) = content.pop("images")
    del image["image"]
    return {
        "model_version": served.version,
        **content,
        **image,
        "caveats": recommendation.caveats(0),
        "because": json.loads(reasons["because"]),
        "script": command_script(recommendation),
    }


@router.post("/requests", summary="Compute sequences of requests for an image")
async def request_sequences(request: Request, question: RequestsQuestion) -> dict[str, Any]:
    """Predict the distribution of the runtime, and compute the first request, and the next ones.

    Like the bounds of the model it is for the longest run of a subject, slightly wider than that
    of a single run.
    """
    served, row = served_model(request), question.complete(question.row)
    configuration = served.bundle.app_named(row.get("app")).configurations[0]
    if question.configuration is not None:
        configuration = question.configuration.configuration()
    row |= allocation_columns(configuration)
    answers = await asyncio.gather(
        *(predict_rows(request, [row], quantile, names_rows=False) for quantile in QUANTILES)
    )
    predicted = PredictedRuntime.of(
        {quantile: rows[0] for quantile, rows in zip(QUANTILES, answers, strict=True)}
    )
    loop = asyncio.get_running_loop()
    content = await loop.run_in_executor(_THREAD, _sequences, predicted, question)
    return {"model_version": served.version, **content}


def _sequences(predicted: PredictedRuntime, question: RequestsQuestion) -> dict[str, Any]:
    can_checkpoint = question.checkpoint_s is not None
    cost = CostModel(
        question.alpha, question.beta, question.gamma,
        question.checkpoint_s or 0.0, question.restart_s or 0.0,
    )  # fmt: skip
    sequences, refused = alternatives(
        question.strategy, predicted.law, cost, Settings(format_length=format_seconds),
        can_checkpoint=can_checkpoint,
    )  # fmt: skip
    cheapest_first = sorted(sequences, key=lambda sequence: sequence.expected_cost)
    return {
        "app": str(predicted.prediction["app"]),
        "host": str(predicted.prediction.get("host") or ""),
        "sequences": [
            {**s.as_json(), "meaning": STRATEGIES[s.strategy].meaning} for s in cheapest_first
        ],
        "knots": predicted.knots,
        "notes": [*predicted.notes, *(f"skipped: {reason}" for reason in refused)],
        "need_checkpoints": [] if can_checkpoint or question.strategy != ALL else CHECKPOINTING,
    }
