"""A planned schedule, and what became of it, as numbers and as lines."""

from __future__ import annotations

import statistics
from datetime import datetime
from typing import TYPE_CHECKING, Any

from voxcast.quantities import counted, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from voxcast.hpc.job_schedule import JobSchedule, PlannedTime


def schedule_lines(schedule: JobSchedule) -> Iterator[str]:
    """Yield the plan, beside other ways to run the same tasks."""
    interval = " to ".join(map(format_seconds, schedule.makespan_interval_s))
    yield (
        f"  planned for {_nodes(schedule)}: "
        f"{counted(schedule.tasks, 'task')} in {counted(len(schedule.jobs), 'job')}"
    )
    rows = [("", "makespan", "core-hours", "times the bound")]
    ways = {"as planned": schedule.predicted, **schedule.alternatives}
    rows += [_row(name, time, schedule) for name, time in ways.items()]
    yield text_table(rows, "<>>>", "  ")
    yield (
        f"  the plan takes {interval} (90 %, by the spread of the predictions); "
        f"no plan takes less than {format_seconds(schedule.makespan_bound_s)}, the bound"
    )


def _row(name: str, time: PlannedTime, schedule: JobSchedule) -> tuple[str, str, str, str]:
    share = time.makespan_s / schedule.makespan_bound_s if schedule.makespan_bound_s else 1.0
    return name, format_seconds(time.makespan_s), f"{time.core_h:.3g}", f"{share:.2f}"


def _nodes(schedule: JobSchedule) -> str:
    cores = counted(schedule.cores_per_node, "core")
    return f"{counted(schedule.nodes, 'node')} of {cores}"


def schedule_outcome(
    schedule: JobSchedule, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return what became of a plan so far; None until a task has ended.

    Parameters
    ----------
    rows : sequence of mapping
        Of `voxcast.hpc.submission_status.task_rows`.

    Returns
    -------
    dict or None
        ``makespan_s`` is from the start of the first attempt to the end of the last one;
        ``waited_s`` from the first submission to that start, None where that is not told;
        ``median_time_ratio`` is the median of actual over predicted time of completed tasks.
    """
    spans, submitted, ratios = [], [], []
    core_h = 0.0
    for row in rows:
        for attempt in row["attempts"]:
            start = _epoch_s(attempt["started_at"])
            if start is not None:
                spans.append((start, start + attempt["runtime_s"]))
            submitted.append(_epoch_s(attempt["submitted_at"]))
            core_h += attempt["request"]["cpus"] * attempt["runtime_s"] / 3600
            if attempt["outcome"] == "completed" and row["predicted_runtime_s"]:
                ratios.append(attempt["runtime_s"] / row["predicted_runtime_s"])
    if not spans:
        return None
    first = min(start for start, _ in spans)
    makespan_s = max(end for _, end in spans) - first
    times = [time for time in submitted if time is not None]
    lower_s, upper_s = schedule.makespan_interval_s
    return {
        "makespan_s": makespan_s,
        "predicted_makespan_s": schedule.predicted.makespan_s,
        "within_interval": lower_s <= makespan_s <= upper_s,
        "tasks_core_h": core_h,
        "waited_s": first - min(times) if times else None,
        "median_time_ratio": statistics.median(ratios) if ratios else None,
        "finished": all(row["status"] in ("completed", "given up", "refused") for row in rows),
    }


def outcome_line(schedule: JobSchedule, outcome: Mapping[str, Any]) -> str:
    """Return a plan and what became of it in one line."""
    lower_s, upper_s = schedule.makespan_interval_s
    planned = format_seconds(schedule.predicted.makespan_s)
    interval = f"{format_seconds(lower_s)} to {format_seconds(upper_s)}"
    took = "took" if outcome["finished"] else "so far"
    line = (
        f"  planned {planned} ({interval}) on {_nodes(schedule)}; "
        f"{took} {format_seconds(outcome['makespan_s'])}"
    )
    if outcome["waited_s"] is not None:
        line += f" after waiting {format_seconds(outcome['waited_s'])}"
    if outcome["median_time_ratio"] is not None:
        line += f"; a task took {outcome['median_time_ratio']:.2f} times its prediction (median)"
    return line


def _epoch_s(text: str) -> float | None:
    """Return the seconds of a time; None if it is none, such as ``Unknown``."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
