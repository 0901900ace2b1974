"""A recommendation as plain values, for ``--json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from voxcast.allocation.reasons import excluded
from voxcast.allocation.recommendation import PREDICTED_COLUMNS

if TYPE_CHECKING:
    from voxcast.allocation.assessment import Assessment
    from voxcast.allocation.recommendation import Recommendation

_TURNAROUNDS = ("turnaround_s", "turnaround_bound_s", "turnaround_expected_s")


def as_json(recommendation: Recommendation) -> dict[str, Any]:
    """Return the recommendation as an object that `json` can write."""
    images, measured = recommendation.images, recommendation.measured
    content: dict[str, Any] = {
        "cluster": recommendation.cluster.name,
        "policy": asdict(recommendation.policy) | {"risk": recommendation.policy.risk},
        "limits": asdict(recommendation.limits),
        "host_classes": None if measured is None else list(measured.host_classes),
        "machine": recommendation.machine(),
        "parameters": dict(recommendation.parameters),
        "images": [_image(recommendation, n) for n in range(len(images))],
    }
    if len(images) > 1:
        plan = recommendation.shared
        chosen, nearest = int(plan.choice.chosen[0]), int(plan.choice.nearest[0])
        content["array"] = {
            "per_image": recommendation.totals_per_image(),
            "shared": recommendation.totals_shared(),
            "chosen": _request(recommendation, plan.assessment, 0, chosen),
            "nearest": _request(recommendation, plan.assessment, 0, nearest),
            "why": recommendation.why_shared(),
            "calibrated": chosen >= 0
            and all(bool(image.by_candidate[chosen]["calibrated"]) for image in images),
        }
    return content


def _image(recommendation: Recommendation, image: int) -> dict[str, Any]:
    choice = recommendation.per_image.choice
    prediction = recommendation.images[image].by_candidate[0]
    rows = [_row(recommendation, image, n) for n in range(len(recommendation.candidates))]
    chosen, nearest = int(choice.chosen[image]), int(choice.nearest[image])
    return {
        "image": recommendation.images[image].image,
        "app": prediction["app"],
        "family": prediction["family"],
        "input_level": prediction["input_level"],
        "chosen": rows[chosen] if chosen >= 0 else None,
        "nearest": rows[nearest] if nearest >= 0 else None,
        "why": recommendation.why(image),
        "configurations": rows,
    }


def _row(recommendation: Recommendation, image: int, column: int) -> dict[str, Any]:
    assessment = recommendation.per_image.assessment
    prediction = recommendation.images[image].by_candidate[column]
    candidate, free = recommendation.candidates[column], recommendation.cluster.free
    index, measured = (image, column), recommendation.measured
    return {
        **(_request(recommendation, assessment, image, column) or {}),
        **{name: float(prediction[name]) for name in PREDICTED_COLUMNS},
        **{
            name: float(recommendation.cluster.counted_bytes(prediction[name]))
            for name in ("peak_rss_bytes_median", "peak_rss_bytes_upper")
        },
        **{name: float(getattr(assessment, name)[index]) for name in _TURNAROUNDS},
        "usd": 0.0 if free else float(assessment.cost[index]),
        "usd_bound": 0.0 if free else float(assessment.cost_bound[index]),
        "usd_expected": 0.0 if free else float(assessment.cost_expected[index]),
        "core_h": candidate.cpus * float(prediction["runtime_s_median"]) / 3600,
        # Without calibration the risk is unknown.
        "risk": recommendation.policy.risk if prediction["calibrated"] else None,
        "calibrated": bool(prediction["calibrated"]),
        "out_of_range": str(prediction["out_of_range"]).split(),
        # A server of an earlier release has no sentences.
        "out_of_range_reason": str(prediction.get("out_of_range_reason", "")),
        "measured": None if measured is None else measured.includes(candidate),
        "pareto": bool(assessment.pareto[index]),
        "excluded": excluded(assessment, candidate, image, column),
    }


def _request(
    recommendation: Recommendation, assessment: Assessment, image: int, column: int
) -> dict[str, Any] | None:
    if column < 0:
        return None
    candidate = recommendation.candidates[column]
    return {
        "node_type": candidate.node.name,
        "partition": candidate.partition.name,
        "device": candidate.configuration.device,
        "cpus": candidate.cpus,
        "gpus": candidate.gpus,
        "walltime_s": float(assessment.walltime_s[image, column]),
        "memory_bytes": int(assessment.memory_bytes[image, column]),
        "host_class": candidate.node.host_class,
        "wait_s": float(assessment.wait_s[image, column]),
    }
