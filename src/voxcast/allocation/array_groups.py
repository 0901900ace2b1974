"""Images with similar requests, each group of which is one array job.

A task of an array requests what the largest of its group needs. Requests are similar where they
are of one configuration and node type, and differ by less than a factor of two in time and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.assessment import Assessment, Predictions, assess
from voxcast.allocation.choice import within_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.allocation.recommendation import Recommendation

MAX_TASKS = 1000  # of an array, unless a site raises MaxArraySize


@dataclass(frozen=True)
class ArrayGroup:
    """Images that share a request.

    Attributes
    ----------
    images : tuple of int
        Indices of the images.
    column : int
        Index of the candidate.
    assessment : Assessment
        Of the shared request, with a row for each image of the group.
    """

    images: tuple[int, ...]
    column: int
    assessment: Assessment


def array_groups(recommendation: Recommendation) -> list[ArrayGroup]:
    """Return groups of all images with a request; each stays within the hard limits."""
    plan = recommendation.per_image
    members: dict[tuple[int, int, int], list[int]] = {}
    for image, column in enumerate(plan.choice.chosen.tolist()):
        if column >= 0:
            walltime_s = plan.assessment.walltime_s[image, column]
            memory_bytes = plan.assessment.memory_bytes[image, column]
            key = (column, *(int(np.ceil(np.log2(size))) for size in (walltime_s, memory_bytes)))
            members.setdefault(key, []).append(image)
    return [
        group
        for (column, *_), images in sorted(members.items())
        for group in _within_limits(recommendation, images, column)
    ]


def _within_limits(
    recommendation: Recommendation, images: Sequence[int], column: int
) -> Iterator[ArrayGroup]:
    """Yield the images as one group, or as several where a shared request exceeds a limit."""
    rows = np.array(images)
    predictions = Predictions(
        *(values[rows] for values in vars(recommendation.predictions).values())
    )
    assessment = assess(
        predictions, recommendation.candidates, recommendation.cluster, recommendation.policy,
        shared=True,
    )  # fmt: skip
    allowed = assessment.fits & within_limits(assessment, recommendation.limits)
    if len(images) == 1 or (len(images) <= MAX_TASKS and allowed[:, column].all()):
        yield ArrayGroup(tuple(images), column, assessment)
        return
    # The longest half apart from the rest, which may then share a shorter request.
    walltime_s = recommendation.per_image.assessment.walltime_s[rows, column]
    ordered = rows[np.argsort(walltime_s, kind="stable")].tolist()
    for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        yield from _within_limits(recommendation, half, column)
