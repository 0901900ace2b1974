"""Questions to the model: ``POST /predict``, ``/recommend``, ``/requests`` and ``/invocations``.

The last answers as ``mlflow models serve`` does with the same model; rows that cannot be read are
refused with the reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fastapi import Request
from pydantic import BaseModel, Field, WithJsonSchema, model_validator
from starlette.responses import Response

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
from voxcast.errors import ModelError, RowError
from voxcast.files import canonical_json
from voxcast.jobs.script import command_script
from voxcast.quantities import format_seconds
from voxcast.records import Configuration
from voxcast.serving.champion import allocation_columns, in_allocations
from voxcast.serving.rows import MAX_CPUS, Row, Text
from voxcast.serving.signature import QUANTILE, Answer
from voxcast.serving.site_candidates import SiteCandidates
from voxcast.web.guards import (
    INVOCATIONS,
    StrictBody,
    json_answer,
    served_model,
    service_router,
)
from voxcast.web.overview import site_of

if TYPE_CHECKING:
    from voxcast.web.batches import Batches

# All strategies take 1.2 s of a core, so that predictions share it with one question at most.
_THREAD = ThreadPoolExecutor(1, "sequences")
MAX_ROWS, MAX_CONFIGURATIONS = 20_000, 64
MAX_EXPLAINED = 500  # rows; an explanation costs several predictions

router = service_router()

# A row is checked with the model's answer, in the words of all other doors.
Cells = Annotated[dict[str, Any], WithJsonSchema(Row.model_json_schema())]
Rows = Annotated[list[Cells], Field(min_length=1, max_length=MAX_ROWS)]
Quantile = Annotated[float, Field(gt=0.5, lt=1, strict=True, description="of the upper bounds")]
Explain = Annotated[bool, Field(strict=True, description="add what changed the runtime most")]


class Allocation(StrictBody):
    """Device, CPUs and GPUs that a question is about."""

    device: str = "cpu"
    cpus: int = Field(1, ge=1, le=MAX_CPUS)
    gpus: int = Field(0, ge=0, le=MAX_CPUS)

    def configuration(self) -> Configuration:
        """Return it as a record."""
        return Configuration(self.device, self.cpus, self.gpus)


Allocations = Annotated[list[Allocation], Field(min_length=1, max_length=MAX_CONFIGURATIONS)]


class Question(StrictBody):
    """What all questions have."""

    app: str | None = Field(None, description="application; may be left out if there is only one")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="parameters of the application, over its defaults"
    )
    host: Text | None = Field(None, description="machine: its id, a host class or a node type")

    def complete(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with the other fields of the question."""
        stated = {"app": self.app, "host": self.host}
        row = {**row, **{name: text for name, text in stated.items() if text is not None}}
        if self.parameters:
            row["parameters_json"] = canonical_json(self.parameters)
        return row


class RowQuestion(Question):
    """A question about one image, whose allocation is chosen by the service."""

    row: Cells = Field(description="header and characteristics, as `POST /images` returns them")


class PredictQuestion(Question):
    """A question for predictions of rows."""

    rows: Rows = Field(description="each as `POST /images` returns it, with its allocation")
    configurations: Allocations | Literal["all"] | None = Field(
        None,
        description="allocations to predict each row for; `all`: those that were measured; by "
        "default the one of the row",
    )
    quantile: Quantile = QUANTILE
    explain: Explain = False


class PredictAnswer(BaseModel):
    """Predictions, one for each row and allocation."""

    model_version: str
    predictions: list[Answer]


@router.post("/predict", response_model=PredictAnswer)
async def predict(request: Request, question: PredictQuestion) -> Response:
    """Predict rows, in order; a row that is refused is named, and no other is answered."""
    served = served_model(request)
    rows = [question.complete(row) for row in question.rows]
    if question.configurations == "all":
        apps = [served.bundle.app_named(row.get("app")) for row in rows]
        rows = [
            r
            for row, app in zip(rows, apps, strict=True)
            for r in in_allocations([row], app.configurations)
        ]
    elif question.configurations is not None:
        rows = in_allocations(rows, [a.configuration() for a in question.configurations])
    predictions = await predict_rows(
        request, rows, question.quantile, explain=question.explain,
        names_rows=len(question.rows) > 1 or question.configurations is None,
    )  # fmt: skip
    return json_answer({"model_version": served.version, "predictions": predictions})


async def predict_rows(
    request: Request,
    rows: list[dict[str, Any]],
    quantile: float = QUANTILE,
    *,
    explain: bool = False,
    names_rows: bool = True,
) -> list[dict[str, Any]]:
    """Return a prediction for each row of the model's signature, in common calls of requests.

    Parameters
    ----------
    names_rows : bool
        Whether an error names the row, which the client must have sent.

    Raises
    ------
    ModelError
        If a row is refused.
    """
    if len(rows) > MAX_ROWS:
        raise ModelError(f"at most {MAX_ROWS} rows are predicted at a time", "rows")
    if explain and len(rows) > MAX_EXPLAINED:
        raise ModelError(f"at most {MAX_EXPLAINED} rows are explained at a time", "explain")
    batches: Batches = request.app.state.batches
    try:
        return await batches.predict(served_model(request), rows, quantile, explain=explain)
    except RowError as error:
        raise error if names_rows else ModelError(str(error.reason)) from None


class Split(BaseModel):
    """A table as pandas splits it."""

    columns: list[str]
    data: list[list[Any]]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(len(values) != len(self.columns) for values in self.data):
            raise ValueError("needs as many values in each row of data as columns")
        return self


class Params(StrictBody):
    """The parameters of the model's signature."""

    quantile: Quantile = QUANTILE
    explain: Explain = False


class Invocation(StrictBody):
    """A question in MLflow's protocol."""

    dataframe_records: Rows | None = None
    dataframe_split: Split | None = None
    params: Params | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.dataframe_records is None) == (self.dataframe_split is None):
            raise ValueError("needs either dataframe_records or dataframe_split")
        return self


@router.post(INVOCATIONS, response_class=Response, include_in_schema=False)
async def invocations(request: Request, question: Invocation) -> Response:
    """Predict rows as MLflow's server does."""
    rows, params = question.dataframe_records, question.params or Params()
    if rows is None and (split := question.dataframe_split) is not None:
        rows = [dict(zip(split.columns, values, strict=True)) for values in split.data]
    predictions = await predict_rows(request, rows or [], params.quantile, explain=params.explain)
    return json_answer({"predictions": predictions})


@router.get("/version", include_in_schema=False)
async def mlflow_version() -> Response:
    """Return the release of MLflow whose protocol this is."""
    return Response(version("mlflow"))


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
