"""A recommendation as lines of text, at most `WIDTH` characters long."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING

from voxcast.allocation.reasons import excluded
from voxcast.quantities import format_seconds, memory_option, slurm_clock, slurm_memory
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.allocation.assessment import Assessment
    from voxcast.allocation.recommendation import Recommendation

WIDTH = 100


def text_lines(recommendation: Recommendation) -> Iterator[str]:
    """Yield all configurations of one image, or a line for each of many and for the array job."""
    many = len(recommendation.images) > 1
    plan = recommendation.per_image
    for n, image in enumerate(recommendation.images):
        column = int(plan.choice.chosen[n])
        name = os.path.basename(image.image)  # noqa: PTH119
        request = (
            "no request" if column < 0
            else f"request {_request(recommendation, plan.assessment, n, column)}"
        )  # fmt: skip
        app = image.by_candidate[0]["app"]
        yield from _wrapped(f"{name}: {app} on {recommendation.cluster.name}: {request}", "")
        if column < 0:
            yield from _wrapped(recommendation.why(n))
        elif not many:
            yield from _wrapped(f"reason: {recommendation.why(n)}")
        if not many:
            yield from _configurations(recommendation, n)
        for line in recommendation.caveats(n):
            yield from _wrapped(line)
    if many:
        yield from _array_job(recommendation)
    yield from _wrapped("--mem is in Slurm's M, of 2^20 bytes")
    yield from _wrapped(recommendation.machine())


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _configurations(recommendation: Recommendation, image: int) -> Iterator[str]:
    plan, policy = recommendation.per_image, recommendation.policy
    assessment, predictions = plan.assessment, recommendation.images[image].by_candidate
    bound, unit = f"{100 * policy.confidence:g} %", "core-h" if assessment.free else "USD"
    labels = [
        f"{candidate.label}{' ?' if recommendation.unmeasured(n) else ''}"
        for n, candidate in enumerate(recommendation.candidates)
    ]
    rows = [("", "runtime 50 %", bound, "--mem", "turnaround", unit, "at most")]
    for n, label in enumerate(labels):
        index, prediction = (image, n), predictions[n]
        rows.append(
            (
                label,
                format_seconds(prediction["runtime_s_median"]),
                format_seconds(prediction["runtime_s_upper"]),
                slurm_memory(assessment.memory_bytes[index]),
                format_seconds(assessment.turnaround_s[index]),
                f"{assessment.cost[index]:.2g}",
                f"{assessment.cost_bound[index]:.2g}",
            )
        )
    head, *lines = text_table(rows, "<>>>>>>").splitlines()
    yield f"  {head}"
    for n, (candidate, line) in enumerate(zip(recommendation.candidates, lines, strict=True)):
        index = (image, n)
        mark = "*" if n == plan.choice.chosen[image] else "+" if assessment.pareto[index] else " "
        yield f"{mark} {line}"
        if reason := excluded(assessment, candidate, image, n):
            yield from _wrapped(f"excluded: {reason}", "    ")
    yield "  * recommended, + no other is both cheaper and faster"
    if any(recommendation.unmeasured(n) for n in range(len(labels))):
        yield "  ? never measured: time and risk of this row are a guess"
    if all(prediction["calibrated"] for prediction in predictions):
        yield f"  at most {100 * policy.risk:.3g} % of such requests are too small"
    if not recommendation.cluster.queues and not assessment.free:
        yield "  waiting times of this cluster are unknown and counted as 0; see --waiting"


def _array_job(recommendation: Recommendation) -> Iterator[str]:
    free = recommendation.cluster.free
    yield from _wrapped(
        f"separate jobs: {_totals(recommendation.totals_per_image(), free=free)}", ""
    )
    totals = recommendation.totals_shared()
    if totals is None:
        yield from _wrapped(f"one array job: no request; {recommendation.why_shared()}", "")
        return
    plan = recommendation.shared
    request = _request(recommendation, plan.assessment, 0, int(plan.choice.chosen[0]))
    yield from _wrapped(f"one array job: request {request} for each task", "")
    yield from _wrapped(_totals(totals, free=free))
    yield from _wrapped(f"reason: {recommendation.why_shared()}")


def _totals(totals: dict[str, float], *, free: bool) -> str:
    cost = f"{totals['usd']:.2g} USD, at most {totals['usd_bound']:.2g}, "
    return (
        f"{'' if free else cost}{totals['core_h']:.2g} core-hours; requested but unused "
        f"{totals['waste_core_h']:.2g} core-hours, {totals['waste_gb_h']:.2g} GB-hours"
    )


def _request(
    recommendation: Recommendation, assessment: Assessment, image: int, column: int
) -> str:
    candidate, memory = recommendation.candidates[column], assessment.memory_bytes[image, column]
    return (
        f"{candidate.label}, --time={slurm_clock(assessment.walltime_s[image, column])} "
        f"{memory_option(memory, candidate.cpus, per_cpu=candidate.partition.memory_per_cpu)}"
    )
