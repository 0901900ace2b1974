"""``POST /predict``: quantiles of every target for rows; and MLflow's ``POST /invocations``.

The latter answers as ``mlflow models serve`` does with the same model; rows that cannot be read
are refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from starlette.responses import Response

from voxcast.errors import ModelError, RowError
from voxcast.files import canonical_json
from voxcast.records import Configuration
from voxcast.serving.champion import in_allocations
from voxcast.serving.rows import MAX_CPUS, Row, Text
from voxcast.serving.signature import QUANTILE, Answer
from voxcast.web.guards import INVOCATIONS, json_answer, served_model, service_router

if TYPE_CHECKING:
    from voxcast.web.batches import Batches

MAX_ROWS, MAX_CONFIGURATIONS = 20_000, 64
MAX_EXPLAINED = 500  # rows; an explanation costs several predictions

router = service_router()

# A row is checked with the model's answer, in the words of all other doors.
Cells = Annotated[dict[str, Any], WithJsonSchema(Row.model_json_schema())]
Rows = Annotated[list[Cells], Field(min_length=1, max_length=MAX_ROWS)]
Quantile = Annotated[float, Field(gt=0.5, lt=1, strict=True, description="of the upper bounds")]
Explain = Annotated[bool, Field(strict=True, description="add what changed the runtime most")]


class Allocation(BaseModel):
    """Device, CPUs and GPUs that a question is about."""

    model_config = ConfigDict(extra="forbid")

    device: str = "cpu"
    cpus: int = Field(1, ge=1, le=MAX_CPUS)
    gpus: int = Field(0, ge=0, le=MAX_CPUS)

    def configuration(self) -> Configuration:
        """Return it as a record."""
        return Configuration(self.device, self.cpus, self.gpus)


Allocations = Annotated[list[Allocation], Field(min_length=1, max_length=MAX_CONFIGURATIONS)]


class Question(BaseModel):
    """What all questions have."""

    model_config = ConfigDict(extra="forbid")

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


class Params(BaseModel):
    """The parameters of the model's signature."""

    model_config = ConfigDict(extra="forbid")

    quantile: Quantile = QUANTILE
    explain: Explain = False


class Invocation(BaseModel):
    """A question in MLflow's protocol."""

    model_config = ConfigDict(extra="forbid")

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
