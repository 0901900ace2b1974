"""``POST /recommend``: which configuration to request for an image, on a cluster, by a policy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from voxcast.allocation.offers import HardLimits, seconds_until
from voxcast.allocation.recommendation import ImagePredictions
from voxcast.jobs.script import slurm_text
from voxcast.records import Configuration
from voxcast.serving.site_candidates import SiteCandidates
from voxcast.web.question_schema import QUESTION_PROBLEMS, body_of
from voxcast.web.questions import ImageQuestion, question
from voxcast.web.routes.predictions import Allocation, predict_image
from voxcast.web.routes.sites import sites_of
from voxcast.web.served_model import served_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.allocation.recommendation import Recommendation
    from voxcast.config import Site
    from voxcast.serving.served_app import ServedApp

MAX_CONFIGURATIONS = 64
NAMELESS = "the image"

router = APIRouter()

Name = Annotated[str, Field(max_length=100)]


class RecommendQuestion(ImageQuestion):
    """A question for a recommendation."""

    cluster: Name | None = Field(
        None, description="as listed by `GET /sites`; `local` is the machine of the service",
        examples=["osc"],
    )  # fmt: skip
    policy: Name | None = Field(
        None, description="how much risk is accepted, and what time is worth", examples=["thrifty"]
    )
    deadline: Name | None = Field(
        None, description="finish within this duration, or by this time in ISO 8601",
        examples=["2h", "2030-01-31T18:00"],
    )  # fmt: skip
    budget_usd: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="maximum cost", examples=[0.05]
    )
    partition: Name | None = Field(None, description="use this partition only")
    configurations: list[Allocation] | None = Field(
        None, min_length=1, max_length=MAX_CONFIGURATIONS,
        description="allocations to choose from; by default those of the application",
    )  # fmt: skip


class CandidateAnswer(BaseModel):
    """A configuration on a type of node: its request, expected use and cost."""

    node_type: str
    partition: str
    device: str
    cpus: int
    gpus: int
    host_class: str | None
    walltime_s: float = Field(description="to request")
    memory_bytes: int = Field(description="to request")
    wait_s: float = Field(description="expected time in the queue")
    runtime_s_median: float
    runtime_s_upper: float = Field(description="at the confidence of the policy")
    peak_rss_bytes_median: float
    peak_rss_bytes_upper: float = Field(description="at the confidence of the policy")
    turnaround_s: float = Field(description="waiting, and running for the median")
    turnaround_bound_s: float = Field(description="waiting, and running up to the bound")
    turnaround_expected_s: float = Field(description="with failed attempts")
    usd: float = Field(description="if the median is used")
    usd_bound: float = Field(description="if the whole request is used")
    usd_expected: float = Field(description="with failed attempts")
    core_h: float = Field(description="core-hours of the median runtime")
    risk: float | None = Field(
        description="probability at most that the request is too small; null: not known"
    )
    calibrated: bool
    out_of_range: list[str]
    out_of_range_reason: str
    measured: bool | None = Field(description="whether this allocation was ever measured")
    pareto: bool = Field(description="no other is both cheaper and faster")
    excluded: str | None = Field(description="why it cannot be requested")


class LimitsAnswer(BaseModel):
    """The limits as they were understood."""

    deadline_s: float | None
    budget_usd: float | None


class PolicyAnswer(BaseModel):
    """The policy that was applied."""

    name: str
    confidence: float
    memory_margin: float
    hour_in_core_hours: float
    risk: float


class ReasonAnswer(BaseModel):
    """A feature that changed the predicted runtime."""

    name: str
    factor: float = Field(description="the prediction over that at the usual value")
    value: float
    usual: float = Field(description="median over the training runs")
    text: str


class RecommendAnswer(BaseModel):
    """All configurations, and the recommended one."""

    model_version: str
    cluster: str
    policy: PolicyAnswer
    limits: LimitsAnswer
    host_classes: list[str] | None = Field(description="machines that the model was learned from")
    machine: str = Field(description="the machines whose times these are")
    app: str
    parameters: dict[str, Any] = Field(description="of the application, over its defaults")
    family: str
    input_level: str = Field(description="`header` or `volume`: what was known of the image")
    chosen: CandidateAnswer | None = Field(description="null if none is within the limits")
    nearest: CandidateAnswer | None = Field(description="exceeds the limits least")
    why: str
    configurations: list[CandidateAnswer]
    caveats: list[str] = Field(description="why the request may not hold as stated")
    script: str = Field(description="for `sbatch`, which takes the command; may be empty")
    because: list[ReasonAnswer] = Field(description="what changed the predicted runtime most")


@router.post(
    "/recommend", summary="Recommend a request for an image",
    openapi_extra=body_of(RecommendQuestion), responses=QUESTION_PROBLEMS,
)  # fmt: skip
async def recommend(request: Request) -> RecommendAnswer:
    """Assess every configuration on the nodes of a cluster, and recommend a request.

    Limits are at the confidence of the policy. With a deadline the cheapest configuration within
    it is chosen, with a budget the fastest; else cost and time are weighed by the policy.
    """
    query = await question(request, RecommendQuestion)
    limits = HardLimits(
        None if query.deadline is None else seconds_until(query.deadline), query.budget_usd
    )
    site = await asyncio.to_thread(sites_of(request).site, query.cluster, query.policy)
    row, policy = query.request_row(), site.policy
    served = served_model(request)
    app = served.bundle.app_named(None if row.get("app") is None else str(row["app"]))
    # In a thread, since this machine is looked at where it is the cluster.
    candidates = await asyncio.to_thread(_candidates, query, row, site, app)
    rows = candidates.rows(row)
    predictions = candidates.by_candidate(await predict_image(request, rows, policy.confidence))
    name = NAMELESS if query.path is None else Path(query.path).name
    recommendation = await asyncio.to_thread(
        candidates.recommendation,
        policy, limits, [ImagePredictions(name, predictions)], app.host_classes, app.measured,
        query.parameters,
    )  # fmt: skip
    choice = recommendation.per_image.choice
    column = max(int(choice.chosen[0]), int(choice.nearest[0]), 0)
    explained = candidates.by_candidate(rows)[column]
    (reasons,) = await predict_image(request, [explained], policy.confidence, explain=True)
    because = json.loads(reasons["because"])
    return RecommendAnswer(
        model_version=served.version, because=because, **_content(recommendation)
    )


def _candidates(
    query: RecommendQuestion, row: Mapping[str, Any], site: Site, app: ServedApp
) -> SiteCandidates:
    configurations, host = app.configurations, row.get("host")
    if query.configurations is not None:
        configurations = [Configuration(c.device, c.cpus, c.gpus) for c in query.configurations]
    return SiteCandidates.of(
        site.cluster, configurations, app.host_classes,
        partition=query.partition, host=None if host is None else str(host),
    )  # fmt: skip


def _content(recommendation: Recommendation) -> dict[str, Any]:
    content = recommendation.as_json()
    (image,) = content.pop("images")
    del image["image"]
    return {
        **content,
        **image,
        "caveats": recommendation.caveats(0),
        "script": slurm_text(recommendation, as_script=True),
    }
