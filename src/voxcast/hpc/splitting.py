"""Cells that are too long for every allocation, run in parts that join into one run.

An application says how it can be split, see `voxcast.records.App.split`. Parts are cells of the
pool like others, and may be split again. Their runs are kept apart in ``part_runs``: the history
gets the joined run alone, whose times are sums, and whose memory is the largest of its parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import shutil
from typing import TYPE_CHECKING, Any

from voxcast.files import canonical_json, json_text, remove_folder, with_content
from voxcast.hpc.escalation import Ladder
from voxcast.hpc.pool_cells import PoolCell, read_cells, write_cells
from voxcast.hpc.tokens import SPLIT, TODO
from voxcast.measure.runner import LOG_FILE
from voxcast.records import as_fields
from voxcast.runs.series import RECORD_FILE, read_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.hpc.pool import Pool
    from voxcast.hpc.tokens import Claim
    from voxcast.records import App, Cell, Phase, Run

MACHINE = (
    "host_id", "host_class", "cpu_model", "sitting", "probe_cpu", "probe_membw", "probe_disk",
)  # fmt: skip
COMPLETE = ".complete"  # keeps the folder of tokens from ever being empty, and replaced


def items(app: App, cell: Cell) -> range:
    """Return the items that a run of ``cell`` goes through; one where it cannot be split.

    Examples
    --------
    >>> from voxcast.records import App, Cell, Configuration
    >>> app = App("a", "1", split={"count": "folds", "range": "some"})
    >>> parameters = {"folds": 5, "some": ""}
    >>> cell = Cell("a", "1", parameters, "", "", Configuration("cpu", 1), "full_scale", 0, "")
    >>> items(app, cell)
    range(0, 5)
    >>> items(app, dataclasses.replace(cell, parameters=parameters | {"some": "2:4"}))
    range(2, 4)
    """
    if not app.split:
        return range(1)
    first, sign, end = str(cell.parameters.get(app.split["range"]) or "").partition(":")
    try:
        return (
            range(int(first), int(end))
            if sign
            else range(int(cell.parameters[app.split["count"]]))
        )
    except (KeyError, TypeError, ValueError):
        return range(1)


def parts_of(
    pool_cell: PoolCell, app: App, walltime_s: float, max_walltime_s: float
) -> list[PoolCell]:
    """Return the parts of a cell that are short enough; empty if it cannot be split.

    Parameters
    ----------
    walltime_s : float
        What the cell asks for.
    max_walltime_s : float
        The longest request.
    """
    all_items = items(app, pool_cell.cell)
    longer = walltime_s / max_walltime_s if max_walltime_s < math.inf else 0.0
    pieces = min(max(2, math.ceil(longer)), len(all_items))
    if pieces < 2:
        return []
    edges = [round(n * len(all_items) / pieces) + all_items.start for n in range(pieces + 1)]
    parts = []
    for first, end in itertools.pairwise(edges):
        share = (end - first) / len(all_items)
        parameters = {**pool_cell.cell.parameters, app.split["range"]: f"{first}:{end}"}
        times = {
            min(share * w, max_walltime_s) for w in (*pool_cell.ladder.walltimes_s, walltime_s)
        }
        ladder: Ladder = dataclasses.replace(pool_cell.ladder, walltimes_s=tuple(sorted(times)))
        cell = dataclasses.replace(pool_cell.cell, parameters=parameters)
        parts.append(PoolCell(cell, ladder, share * pool_cell.expected_s, pool_cell.key))
    return parts


def split_cell(pool: Pool, claim: Claim, attempts: int, parts: Sequence[PoolCell]) -> None:
    """Leave the cell of ``claim`` to its parts, whose tokens are made exactly once."""
    listed = pool.folder / "parts" / claim.key
    write_cells(listed.with_suffix(".jsonl"), parts)
    staged = listed.parent / f".{claim.name}"
    staged.mkdir(exist_ok=True)
    (staged / COMPLETE).touch()
    for part in parts:
        (staged / f"{part.key}.0").touch()
    try:
        staged.rename(listed)
    except OSError:  # a worker that was killed before had come this far
        remove_folder(staged)
    if pool.tokens.set_aside(claim, attempts):
        release_parts(pool, claim.key)


def is_split(pool: Pool, key: str) -> bool:
    """Tell whether the parts of a cell have been made."""
    return (pool.folder / "parts" / key).is_dir()


def release_parts(pool: Pool, key: str) -> None:
    """Let the parts of a cell wait for workers, if they do not already."""
    for token in (pool.folder / "parts" / key).glob("[!.]*"):
        with contextlib.suppress(FileNotFoundError):
            token.rename(pool.folder / TODO / token.name)


def joinable(pool: Pool, key: str) -> bool:
    """Tell whether all parts of a cell are done."""
    parts = read_cells((pool.folder / "parts" / key).with_suffix(".jsonl"))
    return all(map(pool.tokens.is_recorded, parts))


def join_parts(pool: Pool, key: str, attempts: int, holder: str, cell: Cell) -> Claim | None:
    """Make one run of the runs of all parts, and commit it; None if another worker was first.

    The run is in the folder of the claim; `voxcast.hpc.healing.move_into_place` is next.
    """
    claim = pool.tokens.claim(key, attempts, holder, source=SPLIT)
    if claim is None:
        return None
    part_keys = list(read_cells((pool.folder / "parts" / key).with_suffix(".jsonl")))
    folders = [pool.folder / "part_runs" / pool.tokens.record_key(part) for part in part_keys]
    records = [read_record(folder) for folder in folders]
    longest = max(range(len(records)), key=lambda n: records[n].run.runtime_s or 0.0)
    content = dict(records[longest].content)
    joined = dataclasses.replace(cell, host_class=records[longest].cell.host_class)
    run, phases = joined_run([(record.run, record.phases) for record in records], longest)
    run = dataclasses.replace(
        run,
        cell_key=joined.key,
        parameters_json=canonical_json(joined.parameters),
        noisy=run.noisy or len({record.cell.host_class for record in records}) > 1,
    )
    partial = pool.partial(claim.name)
    if partial.exists():
        remove_folder(partial)
    _copy_results(partial, folders)
    names = [folder.name for folder in folders]
    content |= {"run": as_fields(run), "cell": as_fields(joined), "parts": names}
    content |= {"phases": [as_fields(phase) for phase in phases]}
    (partial / RECORD_FILE).write_text(json_text(content), encoding="utf-8")
    is_ours = pool.tokens.commit(claim, joined.key, with_content(partial))
    return claim if is_ours else None


def joined_run(
    parts: Sequence[tuple[Run, Sequence[Phase]]], longest: int = 0
) -> tuple[Run, list[Phase]]:
    """Return the run and phases of parts that ran one after the other.

    Times and traffic are sums, so that the start of the application counts once for each part;
    memory, threads and use of a GPU are the largest. A value that is unknown in one part is
    unknown in the whole. The machine and its speed are those of the part ``longest``.
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
