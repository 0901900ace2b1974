"""What a plan asks for: requests, arrays, cost, risk, and when it is expected to end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from voxcast.hpc.arrays import core_h, ready_arrays
from voxcast.hpc.attempts import Attempt, Request
from voxcast.hpc.escalation import next_request
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.hpc.arrays import ReadyArray
    from voxcast.hpc.plan import Plan
    from voxcast.hpc.tasks import Task

MOST_LISTED = 20


def planned_arrays(plan: Plan) -> list[ReadyArray]:
    """Return the arrays of the first attempts."""
    return ready_arrays(plan, {task.name: task.ladder.first for task in plan.tasks})


def outlook(plan: Plan) -> dict[str, Any]:
    """Return what the first attempts ask for and cost, and what may come after them.

    ``runtime_s`` is what the tasks take one after the other by prediction; ``longest_s`` is the
    time of the longest request. Waiting in the queue is not in them. ``expected_failures`` is the
    sum of the risks where all are known.
    """
    arrays = planned_arrays(plan)
    tasks = plan.tasks
    runtimes = [task.runtime_s_median for task in tasks]
    risks = [task.risk for task in tasks]
    first_s = [task.ladder.first.walltime_s for task in tasks]
    usd = sum(t.usd_per_hour * s / 3600 for t, s in zip(tasks, first_s, strict=True))
    median_usd = sum(
        t.usd_per_hour * s / 3600 for t, s in zip(tasks, runtimes, strict=True) if math.isfinite(s)
    )
    throttle = plan.slurm.throttle
    at_a_time = min(len(tasks), throttle * len(arrays)) if throttle else len(tasks)
    known_s = [s for s in runtimes if math.isfinite(s)]
    end_s = max([*known_s, sum(known_s) / max(at_a_time, 1)]) if known_s else math.nan
    return {
        "tasks": len(tasks),
        "arrays": len(arrays),
        "requested_core_h": sum(len(a.names) * core_h(a.request) for a in arrays),
        "excess_core_h": sum(array.excess_core_h for array in arrays),
        "usd_bound": usd,
        "usd_median": median_usd,
        "expected_failures": None if None in risks else sum(map(float, filter(None, risks))),
        "runtime_s": sum(known_s),
        "longest_s": max(first_s, default=0.0),
        "expected_end_s": None if math.isnan(end_s) else end_s,
    }


def _later_s(plan: Plan, task: Task, request: Request) -> float:
    """Return what a task asks for after the time of its array was too short; 0 if nothing."""
    attempt = Attempt(request, "timeout", request.walltime_s)
    after = next_request(task.ladder, [attempt], task.bounds(plan.bounds))
    return after.walltime_s if isinstance(after, Request) else 0.0


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of ``voxcast submit --dry-run``."""
    total = outlook(plan)
    cluster = f" on {plan.cluster}" if plan.cluster else ""
    in_arrays = counted(total["arrays"], "array")
    yield f"{plan.app.name}{cluster}: {counted(total['tasks'], 'task')} in {in_arrays}"
    table = [("array", "tasks", "partition", "CPUs", "GPUs", "time", "memory", "if too short")]
    arrays, tasks = planned_arrays(plan), {task.name: task for task in plan.tasks}
    for number, array in enumerate(arrays[:MOST_LISTED], 1):
        first = tasks[array.names[0]]
        request = array.request
        later_s = max(_later_s(plan, tasks[name], request) for name in array.names)
        table.append((
            str(number), str(len(array.names)), first.partition,
            str(request.cpus),
            str(request.gpus), format_seconds(request.walltime_s),
            format_bytes(request.memory_bytes), format_seconds(later_s) if later_s else "-",
        ))  # fmt: skip
    yield text_table(table, ">><>>>>>")
    if len(arrays) > MOST_LISTED:
        yield f"  and {len(arrays) - MOST_LISTED} more arrays"
    core_hours, excess = total["requested_core_h"], total["excess_core_h"]
    yield (
        f"  asks for {core_hours:.3g} core-hours, of which sharing arrays costs {excess:.2g}; "
        "4 GB count as a core"
    )
    if total["usd_bound"]:
        usd, bound = total["usd_median"], total["usd_bound"]
        yield f"  costs {usd:.2f} USD, at most {bound:.2f} if all run to their limits"
    failures = total["expected_failures"]
    if failures is None:
        yield "  how many first requests are too small is not known: some are not calibrated"
    else:
        yield f"  of the first requests at most {failures:.2g} are expected to be too small"
    if total["expected_end_s"] is not None:
        end, throttle = format_seconds(total["expected_end_s"]), plan.slurm.throttle
        throttled = f", {throttle} at a time in each array" if throttle else ""
        yield f"  done {end} after the first starts{throttled}, if none waits in the queue"
