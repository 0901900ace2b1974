"""``--requests FILE``: a plan, or what ``voxcast recommend --json`` wrote, as tasks."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError
from voxcast.hpc.escalation import Ladder
from voxcast.hpc.ladders import walltime_ladders
from voxcast.hpc.plan import VERSION_KEY
from voxcast.hpc.tasks import Task, task_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def is_plan(content: Mapping[str, Any]) -> bool:
    """Tell whether an object is a plan, as ``voxcast submit --dry-run --json`` writes it."""
    return VERSION_KEY in content


def app_name(content: Mapping[str, Any], where: Path) -> str:
    """Return the application of a recommendation.

    Raises
    ------
    ConfigError
        If it is of none or of several, or is no recommendation.
    """
    try:
        names = sorted({str(image["app"]) for image in content["images"]})
    except (KeyError, TypeError):
        then = "write it with `voxcast submit --dry-run --json` or `voxcast recommend --json`"
        raise ConfigError("neither a plan nor a recommendation", where, then) from None
    if len(names) != 1:
        raise ConfigError(f"is of {len(names)} applications: {', '.join(names)}", where)
    return names[0]


def recommended_tasks(content: Mapping[str, Any], where: Path) -> list[Task]:
    """Return the tasks of a recommendation; paths of images count from the current folder.

    Raises
    ------
    ConfigError
        If an image has no request, or the file is incomplete.
    """
    try:
        images = [os.path.abspath(image["image"]) for image in content["images"]]  # noqa: PTH100
        refused = [image for image in content["images"] if image["chosen"] is None]
        if refused:
            problem = f"no request for {refused[0]['image']}: {refused[0]['why']}"
            raise ConfigError(problem, where, "leave it out, or change the limits")
        rows = [image["chosen"] for image in content["images"]]
        return tasks_of(images, rows, float(content["policy"]["confidence"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"incomplete: {error!r}", where, "write it again") from None


def tasks_of(
    images: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    confidence: float,
    limits: Sequence[tuple[float, float]] | None = None,
    step_s: float = 1.0,
) -> list[Task]:
    """Return a task for each image from its recommended row, as in ``recommend --json``.

    Parameters
    ----------
    images : sequence of str
        Absolute paths.
    confidence : float
        Probability of the upper bound of the runtime.
    limits : sequence of (float, float), optional
        The longest time and the largest memory that the partition of each allows.
    step_s : float
        Later requests are rounded up to multiples of this.
    """
    ladders = walltime_ladders(
        [float(row["walltime_s"]) for row in rows],
        [float(row["runtime_s_median"]) for row in rows],
        [float(row["runtime_s_upper"]) for row in rows],
        confidence,
        step_s,
    )
    limits = limits or [(math.inf, math.inf)] * len(rows)
    return [
        Task(
            name, image, str(row["partition"]), str(row["device"]),
            Ladder(_up_to(walltimes_s, most_s), (int(row["memory_bytes"]),), int(row["cpus"]),
                   int(row["gpus"])),
            _usd_per_hour(row), float(row["runtime_s_median"]),
            float(row["peak_rss_bytes_median"]), row["risk"], most_s, most_bytes,
            prediction=_prediction(row, confidence),
        )
        for name, image, row, walltimes_s, (most_s, most_bytes) in zip(
            task_names(images), images, rows, ladders, limits, strict=True
        )
    ]  # fmt: skip


def _prediction(row: Mapping[str, Any], confidence: float) -> dict[str, Any]:
    names = ("runtime_s_upper", "peak_rss_bytes_upper", "calibrated", "out_of_range")
    stated = {name: row[name] for name in names if row.get(name) not in (None, [])}
    return {**stated, "confidence": confidence}


def _up_to(walltimes_s: tuple[float, ...], most_s: float) -> tuple[float, ...]:
    first, *later = walltimes_s
    return (first, *sorted({min(rung, most_s) for rung in later if min(rung, most_s) > first}))


def _usd_per_hour(row: Mapping[str, Any]) -> float:
    return 3600 * float(row["usd_bound"]) / float(row["walltime_s"])
