"""A recommendation as lines of text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from voxcast.allocation.reasons import excluded
from voxcast.allocation.recommendation import caveats
from voxcast.quantities import format_bytes, format_seconds, slurm_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.allocation.assessment import Assessment
    from voxcast.allocation.recommendation import Recommendation


def text_lines(recommendation: Recommendation) -> Iterator[str]:
    """Yield all configurations of one image, or a line for each of many and for the array job."""
    many = len(recommendation.images) > 1
    plan, confidence = recommendation.per_image, recommendation.policy.confidence
    for n, image in enumerate(recommendation.images):
        column = int(plan.choice.chosen[n])
        name = os.path.basename(image.image)  # noqa: PTH119
        request = (
            "no request" if column < 0
            else f"request {_request(recommendation, plan.assessment, n, column)}"
        )  # fmt: skip
        app = image.by_candidate[0]["app"]
        yield f"{name}: {app} on {recommendation.cluster.name}: {request}"
        if column < 0:
            yield f"  {recommendation.why(n)}"
        elif not many:
            yield f"  reason: {recommendation.why(n)}"
        if not many:
            yield from _configurations(recommendation, n)
        for caveat in caveats(image.by_candidate[max(column, 0)], confidence):
            yield f"  {caveat}"
    if many:
        yield from _array_job(recommendation)


def _configurations(recommendation: Recommendation, image: int) -> Iterator[str]:
    plan, policy = recommendation.per_image, recommendation.policy
    assessment, predictions = plan.assessment, recommendation.images[image].by_candidate
    bound, unit = f"{100 * policy.confidence:g} %", "core-h" if assessment.free else "USD"
    yield (f"  {'':32}{'runtime 50 %':>13}{bound:>13}{'memory':>10}{'turnaround':>13}"
           f"{unit:>10}{'at most':>10}")  # fmt: skip
    for n, candidate in enumerate(recommendation.candidates):
        index, prediction = (image, n), predictions[n]
        mark = "*" if n == plan.choice.chosen[image] else "+" if assessment.pareto[index] else " "
        yield (
            f"{mark} {candidate.label:32}{format_seconds(prediction['runtime_s_median']):>13}"
            f"{format_seconds(prediction['runtime_s_upper']):>13}"
            f"{format_bytes(assessment.memory_bytes[index]):>10}"
            f"{format_seconds(assessment.turnaround_s[index]):>13}"
            f"{assessment.cost[index]:>10.2g}{assessment.cost_bound[index]:>10.2g}"
        )
        if reason := excluded(assessment, candidate, image, n):
            yield f"    excluded: {reason}"
    yield "  * recommended, + no other is both cheaper and faster"
    if all(prediction["calibrated"] for prediction in predictions):
        yield f"  at most {100 * policy.risk:.3g} % of such requests are too small"
    if not recommendation.cluster.queues and not assessment.free:
        yield "  waiting times of this cluster are unknown and counted as 0; see --waiting"


def _array_job(recommendation: Recommendation) -> Iterator[str]:
    free = recommendation.cluster.free
    yield f"separate jobs: {_totals(recommendation.totals_per_image(), free=free)}"
    totals = recommendation.totals_shared()
    if totals is None:
        yield f"one array job: no request; {recommendation.why_shared()}"
        return
    plan = recommendation.shared
    request = _request(recommendation, plan.assessment, 0, int(plan.choice.chosen[0]))
    yield f"one array job: request {request} for each task"
    yield f"  {_totals(totals, free=free)}"
    yield f"  reason: {recommendation.why_shared()}"


def _totals(totals: dict[str, float], *, free: bool) -> str:
    cost = f"{totals['usd']:.2g} USD, at most {totals['usd_bound']:.2g}, "
    return (
        f"{'' if free else cost}{totals['core_h']:.2g} core-hours; requested but unused "
        f"{totals['waste_core_h']:.2g} core-hours, {totals['waste_gb_h']:.2g} GB-hours"
    )


def _request(
    recommendation: Recommendation, assessment: Assessment, image: int, column: int
) -> str:
    return (
        f"{recommendation.candidates[column].label}, "
        f"{slurm_clock(assessment.walltime_s[image, column])}, "
        f"{format_bytes(assessment.memory_bytes[image, column])}"
    )
