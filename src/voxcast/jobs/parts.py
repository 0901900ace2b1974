"""Cells that are too long for every worker: their parts, and the run that joins the parts' runs.

An application says how it can be split, see `voxcast.records.App.split`. Parts are cells like
others, and may be split again. Their runs are kept apart in ``part_runs``: the history gets the
joined run alone, whose times are sums, and whose memory is the largest of its parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import shutil
from typing import TYPE_CHECKING, Any

from voxcast.files import canonical_json, json_text
from voxcast.jobs.task import Task
from voxcast.measure.runner import LOG_FILE
from voxcast.records import as_fields
from voxcast.runs.series import RECORD_FILE, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.records import App, Cell, Phase, Run

PART_RUNS = "part_runs"
MACHINE = (
    "host_id", "host_class", "cpu_model", "sitting", "probe_cpu", "probe_membw", "probe_disk",
)  # fmt: skip


def items(app: App, parameters: Mapping[str, Any]) -> range:
    """Return the items that a run goes through; one where it cannot be split.

    Examples
    --------
    >>> from voxcast.records import App
    >>> app = App("a", "1", split={"count": "folds", "range": "some"})
    >>> items(app, {"folds": 5, "some": ""}), items(app, {"folds": 5, "some": "2:4"})
    (range(0, 5), range(2, 4))
    """
    try:
        chosen = str(parameters.get(app.split["range"]) or "")
        first, sign, end = chosen.partition(":")
        return range(int(first), int(end)) if sign else range(int(parameters[app.split["count"]]))
    except (KeyError, TypeError, ValueError):
        return range(1)


def parts_of(task: Task, app: App, walltime_s: float, max_walltime_s: float) -> list[Task]:
    """Return the parts of a cell that are short enough; empty if it cannot be split.

    Parameters
    ----------
    walltime_s : float
        The request of the cell.
    max_walltime_s : float
        The longest request.
    """
    cell = task.cell
    all_items = range(1) if cell is None else items(app, cell.parameters)
    longer = walltime_s / max_walltime_s if max_walltime_s < math.inf else 0.0
    pieces = min(max(2, math.ceil(longer)), len(all_items))
    if cell is None or pieces < 2:
        return []
    edges = [round(n * len(all_items) / pieces) + all_items.start for n in range(pieces + 1)]
    parts = []
    for first, end in itertools.pairwise(edges):
        share = (end - first) / len(all_items)
        parameters = {**cell.parameters, app.split["range"]: f"{first}:{end}"}
        times_s = {
            min(share * s, max_walltime_s) for s in (*task.requests.walltimes_s, walltime_s)
        }
        part = Task.of_cell(
            dataclasses.replace(cell, parameters=parameters),
            dataclasses.replace(task.requests, walltimes_s=tuple(sorted(times_s))),
            share * task.expected_s,
        )
        parts.append(dataclasses.replace(part, part_of=task.name))
    return parts


def join(cell: Cell, folders: Sequence[Path], into: Path) -> str:
    """Make the record of a cell, in a new folder, of those of its parts; return its key."""
    shutil.rmtree(into, ignore_errors=True)
    records = [read_record(folder) for folder in folders]
    longest = max(range(len(records)), key=lambda n: records[n].run.runtime_s or 0.0)
    joined = dataclasses.replace(cell, host_class=records[longest].cell.host_class)
    merged, phases = joined_run([(record.run, record.phases) for record in records], longest)
    machines = {record.cell.host_class for record in records}
    merged = dataclasses.replace(
        merged, cell_key=joined.key, parameters_json=canonical_json(joined.parameters),
        noisy=merged.noisy or len(machines) > 1,
    )  # fmt: skip
    _copy_results(into, folders)
    content = records[longest].content | {
        "run": as_fields(merged), "cell": as_fields(joined),
        "phases": [as_fields(phase) for phase in phases],
        "parts": [folder.name for folder in folders],
    }  # fmt: skip
    (into / RECORD_FILE).write_text(json_text(content), encoding="utf-8")
    return joined.key


def joined_run(
    parts: Sequence[tuple[Run, Sequence[Phase]]], longest: int = 0
) -> tuple[Run, list[Phase]]:
    """Return the run and phases of parts that ran one after the other.

    Times and traffic are sums, so that the start of the application counts once for each part;
    memory, threads and use of a GPU are the largest. A value that is unknown in one part is
    unknown in the whole. The machine and its speed are taken from the part ``longest``.
    """
    runs, joined, start_s = [run for run, _ in parts], [], 0.0
    for run, phases in parts:
        joined += [
            dataclasses.replace(p, start_s=p.start_s + start_s, end_s=p.end_s + start_s)
            for p in phases
        ]
        start_s += run.runtime_s or 0.0
    first = min(runs, key=lambda run: run.started_at)
    changes: dict[str, Any] = {
        "outcome": next((r.outcome for r in runs if r.outcome != "completed"), "completed"),
        "noisy": any(run.noisy for run in runs),
        "limit_s": None,
    }
    for name in MACHINE:
        changes[name] = getattr(runs[longest], name)
    sums = ("runtime_s", "cpu_s", "io_read_bytes", "io_write_bytes", "metronome_ticks")
    largest_of = ("peak_rss_bytes", "peak_cgroup_bytes", "peak_threads", "peak_gpu_bytes")
    for name in (*sums, *largest_of):
        values = [getattr(run, name) for run in runs]
        changes[name] = None if None in values else (sum if name in sums else max)(values)
    return dataclasses.replace(first, **changes), joined


def _copy_results(partial: Path, folders: Sequence[Path]) -> None:
    (partial / "out").mkdir(parents=True)
    with (partial / LOG_FILE).open("wb") as log:
        for number, folder in enumerate(folders, 1):
            if (folder / "out").is_dir():
                shutil.copytree(folder / "out", partial / "out" / f"part-{number:03d}")
            with contextlib.suppress(FileNotFoundError):
                log.write((folder / LOG_FILE).read_bytes())
