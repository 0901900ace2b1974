"""What the attempts of a campaign's cell ask for: predicted, or by what is on record or stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.jobs.escalate import Limits, RequestSequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.records import Cell

# What the attempts of a cell ask for where nothing like it is on record: multiples of the time
# that its application states, and memories.
TIME_FACTORS = (3.0, 10.0, 30.0)
LEAST_S = 60.0
MEMORIES = tuple(2**n * 10**9 for n in range(1, 8))  # 2 GB to 128 GB
# Where runs of the application in the same configuration are on record: multiples of the largest.
RECORDED_FACTORS = (1.3, 2.0, 4.0)
# Where a model predicts the cell: multiples of its upper bound.
PREDICTED_FACTORS = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class CellForecast:
    """What a model predicts of a cell: the median of its time, and upper bounds."""

    median_s: float
    upper_s: float
    upper_bytes: float


def requests_of(
    cell: Cell,
    expected_s: float,
    rows: Iterable[Mapping[str, Any]],
    bounds: Limits,
    time_limit_s: float | None,
    predicted: CellForecast | None = None,
) -> RequestSequence:
    """Return what the attempts of a cell ask for.

    Parameters
    ----------
    expected_s : float
        Of the run, from what its application states.
    rows : iterable of mapping
        Runs on record; those of the application in the same configuration count.
    time_limit_s : float, optional
        At which a run is on record as a lower bound: nothing asks for more.
    predicted : CellForecast, optional
        Of this cell; it goes before what is on record.
    """
    configuration = cell.configuration
    alike = [
        row for row in rows
        if row["app"] == cell.app and row["cpus"] == configuration.cpus
        and row["device"] == configuration.device and row["outcome"] == "completed"
    ]  # fmt: skip
    times_s = [max(LEAST_S, factor * expected_s) for factor in TIME_FACTORS]
    memories: list[float] = list(MEMORIES)
    if predicted is not None:
        times_s = [max(LEAST_S, factor * predicted.upper_s) for factor in PREDICTED_FACTORS]
        memories = [max(10**8, factor * predicted.upper_bytes) for factor in PREDICTED_FACTORS]
    elif alike:
        longest_s = max(float(row["runtime_s"]) for row in alike)
        largest = max(int(row["peak_rss_bytes"]) for row in alike)
        times_s = [max(LEAST_S, factor * longest_s) for factor in RECORDED_FACTORS]
        memories = [max(10**8, factor * largest) for factor in RECORDED_FACTORS]
    if configuration.mem_limit_bytes is not None:
        memories = [configuration.mem_limit_bytes]
    most_s = min(time_limit_s or float("inf"), bounds.max_walltime_s)
    return RequestSequence(
        walltimes_s=tuple(sorted({min(t, most_s) for t in times_s})),
        memories_bytes=tuple(sorted({int(min(m, bounds.max_memory_bytes)) for m in memories})),
        cpus=configuration.cpus,
        gpus=configuration.gpus,
    )
