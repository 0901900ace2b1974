"""A recommendation as a table for workflow engines: a row a sample, an attempt a column.

An engine repeats a failed job and tells the number of the attempt, not why the one before failed.
So both time and memory grow with it: time by the sequence of requests that `voxcast submit` makes
(`voxcast.hpc.ladders`), memory by its factor. Nothing exceeds the limits of the partition.
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError
from voxcast.files import atomic_path, json_text, write_text
from voxcast.hpc.attempts import Attempt
from voxcast.hpc.escalation import Bounds, Stop, next_request
from voxcast.hpc.requests_file import tasks_of
from voxcast.quantities import slurm_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.recommendation import Recommendation
    from voxcast.hpc.attempts import Request
    from voxcast.hpc.tasks import Task
    from voxcast.records import Outcome

ATTEMPTS = 3
SUFFIXES = (".csv", ".json")
COLUMNS = (
    "sample", "image", "app", "cluster", "partition", "node_type", "device", "cpus", "gpus",
    "time",
    *(f"time_min_{n}" for n in range(1, ATTEMPTS + 1)),
    *(f"memory_mib_{n}" for n in range(1, ATTEMPTS + 1)),
    "calibrated",
)  # fmt: skip
_MIB = 2**20
_CAUSES: tuple[Outcome, ...] = ("timeout", "out_of_memory")


def resource_rows(recommendation: Recommendation) -> list[dict[str, Any]]:
    """Return a row for each image that has a request.

    Returns
    -------
    list of dict
        ``sample`` (a name from that of the file, different for each image), ``image`` (absolute
        path), ``app``, ``cluster``, ``partition``, ``node_type``, ``device``, ``cpus``, ``gpus``;
        ``time`` (``[D-]HH:MM:SS``) of the first attempt; ``time_min_1`` to ``time_min_3``, minutes
        rounded up; ``memory_mib_1`` to ``memory_mib_3``, of 2**20 bytes, rounded up, as Slurm's M
        and Nextflow's MB; ``calibrated``, whether the first request is as safe as the policy says.
    """
    content = recommendation.as_json()
    chosen = recommendation.per_image.choice.chosen.tolist()
    places = [n for n, column in enumerate(chosen) if column >= 0]
    candidates = [recommendation.candidates[chosen[n]] for n in places]
    images = [content["images"][n] for n in places]
    tasks = tasks_of(
        [os.path.abspath(image["image"]) for image in images],  # noqa: PTH100  # links stay
        [image["chosen"] for image in images],
        recommendation.policy.confidence,
        [(c.max_walltime_s, c.max_memory_bytes) for c in candidates],
        recommendation.cluster.walltime_step_s,
    )
    rows = []
    for image, task in zip(images, tasks, strict=True):
        row, requests = image["chosen"], _requests(task)
        times = {f"time_min_{n}": math.ceil(r.walltime_s / 60) for n, r in enumerate(requests, 1)}
        sizes = {
            f"memory_mib_{n}": math.ceil(r.memory_bytes / _MIB) for n, r in enumerate(requests, 1)
        }
        rows.append(
            {
                "sample": task.name,
                "image": task.image,
                "app": image["app"],
                "cluster": recommendation.cluster.name,
                **{name: row[name] for name in ("partition", "node_type", "device")},
                "cpus": row["cpus"],
                "gpus": row["gpus"],
                "time": slurm_clock(60 * times["time_min_1"]),
                **times,
                **sizes,
                "calibrated": row["calibrated"],
            }
        )
    return rows


def write_resources(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows as CSV or JSON, by the suffix of the file.

    Raises
    ------
    ConfigError
        If it has another suffix.
    """
    check_suffix(path)
    if path.suffix == ".json":
        write_text(path, json_text(list(rows)))
        return
    # The name of an image may hold bytes that are no text.
    with (
        atomic_path(path) as partial,
        partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()}
            )


def check_suffix(path: Path) -> None:
    """Check that a table can be written by this name; errors as `write_resources`."""
    if path.suffix not in SUFFIXES:
        raise ConfigError("must end in .csv or .json", path)


def _requests(task: Task) -> list[Request]:
    """Return what each attempt requests, if all before it had too little time and memory."""
    bounds = task.bounds(Bounds())
    requests = [task.ladder.first]
    while len(requests) < ATTEMPTS:
        request = requests[-1]
        for cause in _CAUSES:
            larger = next_request(task.ladder, [Attempt(request, cause)], bounds)
            # At the limit of the partition the last request is repeated.
            request = request if isinstance(larger, Stop) else larger
        requests.append(request)
    return requests
