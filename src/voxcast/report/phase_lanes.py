"""Lanes of a timeline as small SVG: phases stacked in each bin, communication below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from voxcast.quantities import format_short_seconds
from voxcast.report.canvas import SERIES
from voxcast.report.wording import percent

if TYPE_CHECKING:
    from voxcast.phases.overview import Timeline


MAX_COLOURED = len(SERIES)
OTHER = "other"
LEVELS = 16  # of the height of a lane; a step of 1 pixel or two
COMMUNICATION_LEVELS = 6
GAP = 2
HEIGHT = LEVELS + GAP + COMMUNICATION_LEVELS
MIN_LABEL_SHARE = 0.05  # of the width: shorter stretches have no letter in them
MAX_RECTANGLES = 60_000  # in a timeline: a megabyte


@dataclass(frozen=True)
class Lane:
    """A lane of a timeline.

    Attributes
    ----------
    name : str
        The process, or processes.
    description : str
        For those who do not see it.
    paths : tuple of (str, Markup)
        Name of a colour and the outline of all that has it.
    communication : Markup
        Outline of the share of communication.
    labels : tuple of (str, float)
        Marks in the lane and where they are, in percent of its width.
    """

    name: str
    description: str
    paths: tuple[tuple[str, Markup], ...]
    communication: Markup
    labels: tuple[tuple[str, float], ...]


def bins_for(lanes: int) -> int:
    """Return how many bins the lanes can have so that a page stays small.

    Examples
    --------
    >>> bins_for(2), bins_for(64)
    (1000, 133)
    """
    return min(1000, MAX_RECTANGLES // ((MAX_COLOURED + 1) * max(lanes, 1)))


def lanes(timeline: Timeline, marks: str) -> list[Lane]:
    """Return the lanes of a timeline.

    Parameters
    ----------
    timeline : Timeline
        Its categories: one for each mark, at most as many as there are colours; all other phases;
        after the last event, which stays empty.
    marks : str
        A letter for each of the first categories.
    """
    by_category = timeline.time_s.sum(axis=2)
    total = by_category.sum(axis=1, keepdims=True)
    share = np.divide(by_category, total, out=np.zeros_like(by_category), where=total > 0)
    tops = np.rint(share.cumsum(axis=1) * LEVELS).astype(int)
    bottoms = np.concatenate([np.zeros_like(tops[:, :1]), tops[:, :-1]], axis=1)
    levels = np.rint(timeline.communication_share * COMMUNICATION_LEVELS).astype(int)
    names = [*(f"series-{n}" for n in range(len(marks))), OTHER]
    drawn = []
    for lane, name in enumerate(timeline.lanes):
        outlines = [
            _outline(LEVELS - tops[lane, n], LEVELS - bottoms[lane, n]) for n in range(len(names))
        ]
        floor = np.full(levels.shape[1], HEIGHT)
        drawn.append(
            Lane(
                name,
                _description(name, timeline, lane, marks),
                tuple((c, o) for c, o in zip(names, outlines, strict=True) if o),
                _outline(floor - levels[lane], floor),
                _labels(timeline.category[lane], marks),
            )
        )
    return drawn


def _outline(top: np.ndarray, bottom: np.ndarray) -> Markup:
    """Return the path of a rectangle for each stretch of bins with equal top and bottom."""
    starts = np.flatnonzero((np.diff(top, prepend=-1) != 0) | (np.diff(bottom, prepend=-1) != 0))
    widths = np.diff(starts, append=len(top))
    has_area = top[starts] < bottom[starts]
    return Markup("").join(
        Markup("M{} {}h{}v{}h-{}z").format(x, y, width, height, width)
        for x, y, width, height in zip(
            starts[has_area].tolist(), top[starts][has_area].tolist(), widths[has_area].tolist(),
            (bottom - top)[starts][has_area].tolist(), strict=True,
        )
    )  # fmt: skip


def _labels(category: np.ndarray, marks: str) -> tuple[tuple[str, float], ...]:
    starts = np.flatnonzero(np.diff(category, prepend=-2))
    widths = np.diff(starts, append=len(category))
    return tuple(
        (marks[category[x]], 100 * (x + width / 2) / len(category))
        for x, width in zip(starts.tolist(), widths.tolist(), strict=True)
        if 0 <= category[x] < len(marks) and width >= MIN_LABEL_SHARE * len(category)
    )


def _description(name: str, timeline: Timeline, lane: int, marks: str) -> str:
    by_category = timeline.time_s[lane].sum(axis=(1, 2))
    total = max(float(by_category.sum()), np.finfo(float).tiny)
    parts = [
        f"{mark} {percent(100 * float(seconds) / total)}"
        for mark, seconds in zip(marks, by_category, strict=False)
        if seconds
    ]
    communication = 100 * float(timeline.time_s[lane, :, 1].sum()) / total
    return (
        f"{name}, {format_short_seconds(timeline.end_s)}: "
        f"{', '.join(parts) or 'no phase'}; communication {percent(communication)}"
    )
