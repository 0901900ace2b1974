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

from voxcast.files import json_text, remove_folder, with_content
from voxcast.history.run_folders import RECORD_FILE, read_record
from voxcast.hpc.pool_cells import PoolCell, read_cells, write_cells
from voxcast.hpc.tokens import SPLIT, TODO
from voxcast.jobs.escalate import RequestSequence
from voxcast.profiling.leader import LOG_FILE
from voxcast.records import as_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.hpc.pool import Pool
    from voxcast.hpc.tokens import Claim
    from voxcast.records import App, Cell, Profile

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
            min(share * w, max_walltime_s) for w in (*pool_cell.requests.walltimes_s, walltime_s)
        }
        requests: RequestSequence = dataclasses.replace(
            pool_cell.requests, walltimes_s=tuple(sorted(times))
        )
        cell = dataclasses.replace(pool_cell.cell, parameters=parameters)
        parts.append(PoolCell(cell, requests, share * pool_cell.expected_s, pool_cell.key))
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
    longest = max(range(len(records)), key=lambda n: records[n][2].runtime_s)
    record = dict(records[longest][0])
    joined = dataclasses.replace(cell, host_class=records[longest][1].host_class)
    profile = joined_profile([profile for _, _, profile in records])
    machines = {part.host_class for _, part, _ in records}
    profile = dataclasses.replace(profile, noisy=profile.noisy or len(machines) > 1)
    partial = pool.partial(claim.name)
    if partial.exists():
        remove_folder(partial)
    _copy_results(partial, folders)
    names = [folder.name for folder in folders]
    record |= {"cell": as_fields(joined), "profile": as_fields(profile), "parts": names}
    record |= {"started_at": profile.started_at}
    (partial / RECORD_FILE).write_text(json_text(record), encoding="utf-8")
    is_ours = pool.tokens.commit(claim, joined.key, with_content(partial))
    return claim if is_ours else None


def joined_profile(profiles: Sequence[Profile]) -> Profile:
    """Return the profile of parts that ran one after the other.

    Times and traffic are sums, so that the start of the application counts once for each part;
    memory, threads and use of a GPU are the largest. What is unknown of a part is unknown.
    """
    first, phases, start_s = min(profiles, key=lambda p: p.started_at), [], 0.0
    for profile in profiles:
        phases += [
            dataclasses.replace(p, start_s=p.start_s + start_s, end_s=p.end_s + start_s)
            for p in profile.phases
        ]
        start_s += profile.runtime_s
    worst = next((p.outcome for p in profiles if p.outcome != "completed"), "completed")
    changes: dict[str, Any] = {
        "outcome": worst, "noisy": any(p.noisy for p in profiles), "phases": tuple(phases),
        "time_limit_s": None,
    }  # fmt: skip
    sums = ("runtime_s", "cpu_s", "io_read_bytes", "io_write_bytes", "metronome_ticks")
    largest = ("peak_rss_bytes", "peak_cgroup_bytes", "peak_threads", "peak_gpu_bytes")
    for name in (*sums, *largest):
        values = [getattr(profile, name) for profile in profiles]
        combined = None if None in values else (sum if name in sums else max)(values)
        changes[name] = combined
    return dataclasses.replace(first, **changes)


def _copy_results(partial: Path, folders: Sequence[Path]) -> None:
    (partial / "out").mkdir(parents=True)
    with (partial / LOG_FILE).open("wb") as log:
        for number, folder in enumerate(folders, 1):
            if (folder / "out").is_dir():
                shutil.copytree(folder / "out", partial / "out" / f"part-{number:03d}")
            with contextlib.suppress(FileNotFoundError):
                log.write((folder / LOG_FILE).read_bytes())
