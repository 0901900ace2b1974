"""The speed of the machine that a prediction is for, in words.

Speeds are multiples of that of the reference machine, on which most runs were made, see
`voxcast.models.speed`. A server of an earlier release tells none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.allocation.site import Candidate

MEASURE = "measure it with `voxcast host measure` there"


def machine_line(prediction: Mapping[str, Any]) -> str:
    """Return the machine that a prediction is for; empty where machines are not told apart.

    Examples
    --------
    >>> machine_line({"host": "3f2a", "host_runs": 9, "host_known": True, "speed_lower": 0.91,
    ...               "speed_median": 0.94, "speed_upper": 0.97})
    'for machine 3f2a: speed 0.94 of the reference (0.91 to 0.97, 9 runs)'
    """
    if not prediction.get("host"):
        return ""
    return (
        f"for machine {prediction['host']}: speed {prediction['speed_median']:.2f} of the "
        f"reference ({_interval(prediction)}, {_runs(prediction)})"
    )


def machine_caveats(prediction: Mapping[str, Any]) -> list[str]:
    """Return what is not known of the speed of the machine, and the command that measures it."""
    if prediction.get("host_known", True):
        return []
    then = MEASURE if int(prediction["host_runs"]) else f"check the name, or {MEASURE}"
    return [
        f"not calibrated: {_runs(prediction)} on record on {prediction['host']}, whose speed may "
        f"be {_interval(prediction)} of the reference, so the bounds are wider; {then}"
    ]


def node_speeds(candidates: Sequence[Candidate], predictions: Sequence[Mapping[str, Any]]) -> str:
    """Return the speed of each node type, with the runs that it is known from; empty if unknown.

    Parameters
    ----------
    predictions : sequence of mapping
        Of one image, by candidate.
    """
    by_node = {
        candidate.node.name: f"{candidate.node.name} {prediction['speed_median']:.2f} "
        f"({_interval(prediction)}, {_runs(prediction)})"
        for candidate, prediction in zip(candidates, predictions, strict=True)
        if prediction.get("host")
    }
    return "; ".join(by_node[name] for name in sorted(by_node))


def _interval(prediction: Mapping[str, Any]) -> str:
    return f"{prediction['speed_lower']:.2f} to {prediction['speed_upper']:.2f}"


def _runs(prediction: Mapping[str, Any]) -> str:
    count = int(prediction["host_runs"])
    return "no run" if not count else "1 run" if count == 1 else f"{count} runs"
