"""Tasks: one image each through an application, with the requests of its attempts.

`next_request` decides on the next attempt by the cause of the last one's end: a pure function of
the attempts so far, so that any process that resumes a submission decides alike. Too little time
takes the next time of the sequence and leaves the memory, and the reverse; a fault of the cluster
does not change the request.

Tasks come from a recommendation (`tasks_of`), in memory or as ``recommend --json`` wrote it
(`from_file`). `resources` turns a recommendation into a table for workflow engines.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ConfigError
from voxcast.files import write_text
from voxcast.quantities import format_bytes, format_seconds, slurm_clock
from voxcast.records import Cell, Outcome, Prediction, Request

if TYPE_CHECKING:
    from voxcast.allocation.recommendation import Recommendation

# Of five factors the one of the smallest loss at worst, over recorded runs and published laws.
LEAST_GROWTH = 1.5
RETRY_GROWTH = 1.2  # of any request over the one that was too small
MOST_REQUESTS = 6
# Reserved time delays other users, used time is charged; each request waits in the queue.
COST = (0.95, 1.0, 60.0)  # of `voxcast.allocation.requests.cost.CostModel`
ATTEMPTS = 3  # of the table of resources
TABLE_COLUMNS = (
    "sample", "image", "app", "cluster", "partition", "node_type", "device", "cpus", "gpus",
    "time",
    *(f"time_min_{n}" for n in range(1, ATTEMPTS + 1)),
    *(f"memory_mib_{n}" for n in range(1, ATTEMPTS + 1)),
    "calibrated",
)  # fmt: skip
_CAUSES: tuple[Outcome, ...] = ("timeout", "out_of_memory")
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_NAME = 120
_TIMES = ("walltime_s", "runtime_s_median", "runtime_s_upper")
_NO_LIMITS = (math.inf, math.inf)


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task that has ended; `runtime_s` is 0 if it was never started."""

    request: Request
    outcome: Outcome
    runtime_s: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True)
class RequestSequence:
    """The times and memories that a task requests, both increasing; the rest never changes."""

    walltimes_s: tuple[float, ...]
    memories_bytes: tuple[int, ...]
    cpus: int
    gpus: int = 0
    partition: str = ""
    device: str = "cpu"

    @property
    def first(self) -> Request:
        """The request of the first attempt."""
        return Request(
            self.walltimes_s[0], self.memories_bytes[0], self.cpus, self.gpus, self.partition,
            self.device,
        )  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Where the attempts of a task end.

    Attributes
    ----------
    max_walltime_s, max_memory_bytes : float
        The largest request of the partition.
    max_failures : int
        Attempts that the application itself failed.
    max_stalls : int
        Attempts that were stopped because they did nothing.
    max_usd : float
        Of all attempts of a task together.
    factor : float
        By which a request grows where the sequence has ended.
    """

    max_walltime_s: float = math.inf
    max_memory_bytes: float = math.inf
    max_attempts: int = 10
    max_failures: int = 1
    max_stalls: int = 2
    max_usd: float = math.inf
    factor: float = 1.5


@dataclass
class Array:
    """Tasks of one array job, longest first; the request suffices for each.

    Task N is ``names[N - 1]``. `job` is empty until it is submitted.
    """

    request: Request
    names: tuple[str, ...]
    number: int = 0
    job: str = ""


@dataclass(frozen=True)
class Stop:
    """No further attempt: the task has completed, or is given up for a reason."""

    completed: bool
    reason: str = ""


@dataclass(frozen=True)
class Task:
    """One image, or a run without input.

    Attributes
    ----------
    name : str
        Name of its folder of outputs: letters, digits, ``_``, ``.`` and ``-``.
    image : str
        Absolute path; empty for an application without input.
    usd_per_hour : float
        Price of an hour of the first request; 0 where the cluster charges nothing.
    max_walltime_s, max_memory_bytes : float
        The largest request of its partition.
    volume : dict or None
        Identity, header and characteristics of the image, see
        `voxcast.images.summary.VolumeSummary.facts`.
    prediction : Prediction or None
        On which the requests rest.
    expected_s : float
        Expected time of a run, where workers draw it.
    cell : Cell or None
        The run that a worker measures, on any kind of machine.
    part_of : str
        Name of the task that it is a part of; empty for a whole one.
    """

    name: str
    image: str
    requests: RequestSequence
    usd_per_hour: float = 0.0
    max_walltime_s: float = math.inf
    max_memory_bytes: float = math.inf
    volume: dict[str, Any] | None = None
    prediction: Prediction | None = None
    expected_s: float = 0.0
    cell: Cell | None = None
    part_of: str = ""

    @classmethod
    def of_cell(cls, cell: Cell, requests: RequestSequence, expected_s: float) -> Task:
        """Return a cell as a task; any kind of machine may run it."""
        cell = replace(cell, host_class="")
        return cls(cell.key, "", requests, expected_s=expected_s, cell=cell)

    @property
    def label(self) -> str:
        """A short label for display."""
        return self.name if self.cell is None else self.cell.label

    @property
    def runtime_s_median(self) -> float:
        """Predicted runtime; NaN without a prediction."""
        return self.prediction.runtime_s if self.prediction else math.nan

    def limits(self, common: Limits) -> Limits:
        """Return the common limits of attempts, within the limits of its partition."""
        return replace(
            common,
            max_walltime_s=min(common.max_walltime_s, self.max_walltime_s),
            max_memory_bytes=min(common.max_memory_bytes, self.max_memory_bytes),
        )


def safe_name(text: str) -> str:
    """Return a name that any file system, shell and scheduler takes."""
    return _UNSAFE.sub("_", text)


def task_names(images: Sequence[str]) -> list[str]:
    """Return a name for each image, safe for any file system and shell, and all different.

    Examples
    --------
    >>> task_names(["/a/sub-01_T1w.nii.gz", "/a/my head$(1).nii"])
    ['sub-01_T1w', 'my_head_1']
    """
    from voxcast.images.sources import stem

    safe = (safe_name(stem(Path(image))).strip("_.-")[:_LONGEST_NAME] for image in images)
    names = [name or "image" for name in safe]
    counts = Counter(names)
    return [
        f"{name}-{sha256(os.fsencode(image)).hexdigest()[:8]}" if counts[name] > 1 else name
        for name, image in zip(names, images, strict=True)
    ]


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
        Paths; links stay.
    confidence : float
        Probability of the upper bound of the runtime.
    limits : sequence of (float, float), optional
        The longest time and the largest memory that the partition of each allows.
    step_s : float
        Later requests are rounded up to multiples of this.
    """
    paths = [os.path.abspath(image) for image in images]  # noqa: PTH100
    first_s, median_s, upper_s = ([float(row[name]) for row in rows] for name in _TIMES)
    sequences = walltime_sequences(first_s, median_s, upper_s, confidence, step_s)
    tasks = []
    for name, image, row, walltimes_s, (most_s, most_bytes) in zip(
        task_names(paths), paths, rows, sequences, limits or [_NO_LIMITS] * len(rows), strict=True
    ):
        first, *others = walltimes_s
        later = sorted({min(s, most_s) for s in others if min(s, most_s) > first})
        requests = RequestSequence(
            (first, *later), (int(row["memory_bytes"]),), int(row["cpus"]), int(row["gpus"]),
            str(row["partition"]), str(row["device"]),
        )  # fmt: skip
        risk = row["risk"]
        prediction = Prediction(
            float(row["runtime_s_median"]), float(row["runtime_s_upper"]),
            float(row["peak_rss_bytes_median"]), float(row.get("peak_rss_bytes_upper", math.nan)),
            confidence, None if risk is None else float(risk), bool(row.get("calibrated")),
            bool(row.get("out_of_range")),
        )  # fmt: skip
        usd_per_hour = 3600 * float(row["usd_bound"]) / first
        tasks.append(
            Task(name, image, requests, usd_per_hour, most_s, most_bytes, None, prediction)
        )
    return tasks


def recommended(
    recommendation: Recommendation,
    with_cores: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> tuple[dict[int, Task], list[dict[str, Any]]]:
    """Return the tasks of the images that have a request, by their place, and their rows.

    Parameters
    ----------
    with_cores : callable, optional
        Chooses other CPUs for the images of a recommendation, as in ``recommend --json``.
    """
    content, chosen = recommendation.as_json(), recommendation.offers.choice.chosen.tolist()
    places = [n for n, column in enumerate(chosen) if column >= 0]
    # Of the partition and the type of node, and so the same for any number of CPUs.
    candidates = [recommendation.offers.candidates[chosen[n]] for n in places]
    images = with_cores(content | {"images": [content["images"][n] for n in places]})["images"]
    tasks = tasks_of(
        [image["image"] for image in images], [image["chosen"] for image in images],
        recommendation.offers.policy.confidence,
        [(c.max_walltime_s, c.max_memory_bytes) for c in candidates],
        recommendation.cluster.walltime_step_s,
    )  # fmt: skip
    return dict(zip(places, tasks, strict=True)), images


def from_file(content: Mapping[str, Any], where: Path) -> tuple[str, list[Task]]:
    """Return the application and the tasks of a recommendation.

    Paths of images count from the current folder.

    Raises
    ------
    ConfigError
        If it is not a recommendation for one application, or an image has no request.
    """
    try:
        images = list(content["images"])
        apps = sorted({str(image["app"]) for image in images})
        if len(apps) != 1:
            raise ConfigError(f"is of {len(apps)} applications: {', '.join(apps)}", where)
        for image in images:
            if image["chosen"] is None:
                problem = f"no request for {image['image']}: {image['why']}"
                raise ConfigError(problem, where, "leave it out, or change the limits")
        tasks = tasks_of(
            [image["image"] for image in images], [image["chosen"] for image in images],
            float(content["policy"]["confidence"]), step_s=float(content["walltime_step_s"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        then = "write it with `voxcast submit --dry-run --json` or `voxcast recommend --json`"
        raise ConfigError(
            f"neither a plan nor a recommendation ({error!r})", where, then
        ) from None
    return apps[0], tasks


def walltime_sequences(
    first_s: Sequence[float],
    median_s: Sequence[float],
    upper_s: Sequence[float],
    confidence: float,
    step_s: float = 1.0,
    growth: float | Sequence[float] = LEAST_GROWTH,
) -> list[tuple[float, ...]]:
    """Return the times that each of n tasks requests, increasing.

    The first request is the recommended one. Later times are from the optimal sequence of
    `voxcast.allocation.requests` for the law through the predicted quantiles; each is at least
    ``growth`` times the one before, as a job that exceeds its bound shows that the law may be too
    narrow.

    Parameters
    ----------
    median_s, upper_s : sequence of float, shape (n,)
        Predicted runtime and its upper bound at ``confidence``.
    step_s : float
        Later requests are rounded up to multiples of this.
    growth : float or sequence of float, shape (n,)
    """
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.requests.per_image import requests_per_image
    from voxcast.laws.predicted import PredictedLaw

    if not len(first_s):
        return []
    spread = np.log(np.maximum(np.asarray(upper_s, float) / np.asarray(median_s, float), 1.001))
    residuals = PredictedLaw.of((1 - confidence, 0.5, confidence), (1 / math.e, 1.0, math.e))
    sequences = requests_per_image(
        residuals, CostModel(*COST), np.asarray(median_s, float), spread, spread
    )
    return [
        growing(first, row[np.isfinite(row)].tolist(), step_s, float(least))
        for first, row, least in zip(
            first_s, sequences.requests, np.broadcast_to(growth, len(first_s)), strict=True
        )
    ]


def growing(
    first: float, later: Sequence[float], step: float, growth: float = LEAST_GROWTH
) -> tuple[float, ...]:
    """Return the first request and the later ones that are clearly longer.

    Examples
    --------
    >>> growing(60.0, [50.0, 65.0, 95.0, 100.0], 60.0)
    (60.0, 120.0)
    """
    from voxcast.allocation.site import stepped

    requests = [float(first)]
    for value in later:
        rounded = float(stepped(value, step))
        if rounded >= growth * requests[-1] and len(requests) < MOST_REQUESTS:
            requests.append(rounded)
    return tuple(requests)


def resources(recommendation: Recommendation) -> list[dict[str, Any]]:
    """Return a row of `TABLE_COLUMNS` for each image that has a request.

    A workflow engine repeats a failed job and gives the number of the attempt, not why the one
    before failed. So both time and memory grow with it: time by the sequence that
    ``voxcast submit`` requests, memory by its factor, within the limits of the partition. Minutes
    and MiB are rounded up.
    """
    tasks, images = recommended(recommendation)
    rows = []
    for task, image in zip(tasks.values(), images, strict=True):
        row, requests = image["chosen"], _attempts_of(task)
        minutes = [math.ceil(request.walltime_s / 60) for request in requests]
        mib = [math.ceil(request.memory_bytes / 2**20) for request in requests]
        values = row | {
            "sample": task.name, "image": task.image, "app": image["app"],
            "cluster": recommendation.cluster.name, "time": slurm_clock(60 * minutes[0]),
        }  # fmt: skip
        values |= {f"time_min_{n}": value for n, value in enumerate(minutes, 1)}
        values |= {f"memory_mib_{n}": value for n, value in enumerate(mib, 1)}
        rows.append({name: values[name] for name in TABLE_COLUMNS})
    return rows


def write_resources(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows as CSV."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=list(TABLE_COLUMNS))
    table["calibrated"] = table["calibrated"].astype(str).str.lower()
    write_text(path, table.to_csv(index=False))


def _attempts_of(task: Task) -> list[Request]:
    """Return the request of each attempt, if all before it had too little time and memory."""
    requests = [task.requests.first]
    while len(requests) < ATTEMPTS:
        request = requests[-1]
        for cause in _CAUSES:
            larger = next_request(task.requests, [Attempt(request, cause)], task.limits(Limits()))
            # At the limit of the partition the last request is repeated.
            request = request if isinstance(larger, Stop) else larger
        requests.append(request)
    return requests


def next_request(
    sequence: RequestSequence, attempts: Sequence[Attempt], limits: Limits
) -> Request | Stop:
    """Return the request of the next attempt, or the reason to stop; attempts are in order."""
    if not attempts:
        return sequence.first
    last, request = attempts[-1], attempts[-1].request
    if last.outcome == "completed":
        return Stop(True)
    if last.outcome == "cancelled":
        return Stop(False, "it was cancelled by a user")
    if reason := _reached(attempts, limits):
        return Stop(False, reason)
    if last.outcome == "timeout":
        longer_s = _larger(request.walltime_s, sequence.walltimes_s, limits.factor)
        walltime_s = min(longer_s, limits.max_walltime_s)
        if walltime_s > request.walltime_s:
            return replace(request, walltime_s=walltime_s)
        return Stop(False, f"no request is longer than {format_seconds(request.walltime_s)}")
    if last.outcome == "out_of_memory":
        larger_bytes = _larger(request.memory_bytes, sequence.memories_bytes, limits.factor)
        memory_bytes = int(min(larger_bytes, limits.max_memory_bytes))
        if memory_bytes > request.memory_bytes:
            return replace(request, memory_bytes=memory_bytes)
        return Stop(False, f"no request is larger than {format_bytes(request.memory_bytes)}")
    return request


def _larger(amount: float, amounts: Sequence[float], factor: float) -> float:
    """Return the next amount of an increasing sequence, or a multiple beyond its end.

    A first request may have been raised to just below the next amount, see
    `voxcast.jobs.learned`.
    """
    return next((other for other in amounts if other >= RETRY_GROWTH * amount), factor * amount)


def _reached(attempts: Sequence[Attempt], limits: Limits) -> str:
    """Return which limit the attempts have reached; empty if none."""
    counts = Counter(attempt.outcome for attempt in attempts)
    if counts["failed"] >= limits.max_failures:
        return f"the application failed{_times(counts['failed'])}"
    if counts["stalled"] >= limits.max_stalls:
        return f"it did nothing and was stopped{_times(counts['stalled'])}"
    if len(attempts) >= limits.max_attempts:
        return f"{len(attempts)} attempts were made"
    if (usd := sum(attempt.usd for attempt in attempts)) >= limits.max_usd:
        return f"its attempts have cost {usd:.3g} USD"
    return ""


def _times(count: int) -> str:
    return f" {count} times" if count > 1 else ""
