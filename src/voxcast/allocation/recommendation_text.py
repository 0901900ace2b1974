"""A recommendation as lines of text, at most `WIDTH` characters long."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING

from voxcast.quantities import format_seconds, memory_option, slurm_clock, slurm_memory
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.allocation.offers import Offers
    from voxcast.allocation.recommendation import Recommendation

WIDTH = 100


def text_lines(recommendation: Recommendation) -> Iterator[str]:
    """Yield all configurations of one image, or a line for each of many."""
    many = len(recommendation.images) > 1
    offered = recommendation.offers
    for n, image in enumerate(recommendation.images):
        name = os.path.basename(image.image)  # noqa: PTH119
        app, site = image.by_candidate[0]["app"], recommendation.cluster.name
        yield from _wrapped(f"{name}: {app} on {site}: {_request(offered, n)}", "")
        chosen = offered.choice.chosen[n] >= 0
        if not (chosen and many):
            yield from _wrapped("reason: " * bool(chosen) + offered.why(n))
        if not many:
            yield from _configurations(recommendation, n)
        for line in recommendation.caveats(n):
            yield from _wrapped(line)
    yield from _wrapped("--mem is in Slurm's M, of 2^20 bytes")
    yield from _wrapped(recommendation.machine())


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def _configurations(recommendation: Recommendation, image: int) -> Iterator[str]:
    offered = recommendation.offers
    predictions = recommendation.images[image].by_candidate
    bound = f"{100 * offered.policy.confidence:g} %"
    unit = "core-h" if recommendation.cluster.free else "USD"
    rows = [("", "runtime 50 %", bound, "--mem", "turnaround", unit, "at most")]
    for n, (candidate, prediction) in enumerate(zip(offered.candidates, predictions, strict=True)):
        index = (image, n)
        rows.append(
            (
                candidate.label + " ?" * recommendation.unmeasured(n),
                format_seconds(prediction["runtime_s_median"]),
                format_seconds(prediction["runtime_s_upper"]),
                slurm_memory(offered.memory_bytes[index]),
                format_seconds(offered.turnaround_s[index]),
                f"{offered.cost[index]:.2g}",
                f"{offered.cost_bound[index]:.2g}",
            )
        )
    head, *lines = text_table(rows, "<>>>>>>").splitlines()
    yield f"  {head}"
    for n, line in enumerate(lines):
        index = (image, n)
        mark = "*" if n == offered.choice.chosen[image] else "+" if offered.pareto[index] else " "
        yield f"{mark} {line}"
        if reason := offered.excluded(image, n):
            yield from _wrapped(f"excluded: {reason}", "    ")
    yield "  * recommended, + no other is both cheaper and faster"
    if any(recommendation.unmeasured(n) for n in range(len(predictions))):
        yield "  ? never measured: time and risk of this row are a guess"
    if all(prediction["calibrated"] for prediction in predictions):
        yield f"  {offered.policy.risk_text}"
    if not recommendation.cluster.queues and not recommendation.cluster.free:
        yield "  waiting times of this cluster are unknown and counted as 0; see conf/cluster"


def _request(offered: Offers, image: int) -> str:
    column = int(offered.choice.chosen[image])
    if column < 0:
        return "no request"
    candidate, memory_bytes = offered.candidates[column], offered.memory_bytes[image, column]
    per_cpu = candidate.partition.memory_per_cpu
    return (
        f"request {candidate.label}, --time={slurm_clock(offered.walltime_s[image, column])} "
        f"{memory_option(memory_bytes, candidate.cpus, per_cpu=per_cpu)}"
    )
