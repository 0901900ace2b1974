"""A campaign: cells measured one after the other, each recorded once, whatever interrupts it.

Only what `voxcast.campaigns.recorder` has renamed into place counts, so there is never half a
record, and the same command continues with the cells that are missing.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.launch import check_container, choose
from voxcast.campaigns.cell_queue import CellQueue
from voxcast.campaigns.cells import again
from voxcast.campaigns.driver_lock import driver_lock
from voxcast.campaigns.recorder import Conditions, Recorder
from voxcast.campaigns.sittings import open_sitting
from voxcast.errors import RunError
from voxcast.files import PARTIAL
from voxcast.history.run_folders import record_rows
from voxcast.profiling.runner import sweep
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.profiling.probes import Probes
    from voxcast.records import App, Cell

# So many failures of an application one after the other are no property of the images: it cannot
# run here, and the rest of its cells would be recorded as failed in a minute.
FAILURES = 5


@dataclass(frozen=True)
class Progress:
    """What a sitting has done: folders of the runs made, and how many cells are left."""

    runs: list[Path]
    left: int
    left_s: float


def run_campaign(
    cells: Mapping[str, Cell],
    paths: Mapping[str, Path],
    folder: Path,
    *,
    apps: Mapping[str, App],
    conditions: Conditions | None = None,
    recipes: Mapping[str, dict[str, Any]] | None = None,
    expected_s: Mapping[str, float] | None = None,
    anchors: Sequence[Cell] = (),
    elsewhere: Mapping[str, Mapping[str, Any]] | None = None,
    stop_after_s: float | None = None,
    repeat_noisy_s: float | None = None,
    parallel: int = 1,
    probes: Probes | None = None,
    on_record: Callable[[Path], None] | None = None,
) -> Progress:
    """Measure those of ``cells`` that have no record yet, and once more those that were noisy.

    Parameters
    ----------
    cells : mapping
        By key, in the order to run them.
    paths : mapping
        The file of each volume id.
    folder : Path
        Gets one folder a cell; made if missing.
    recipes : mapping, optional
        How generated volumes were made, by volume id; kept in the records.
    expected_s : mapping, optional
        Expected seconds of a cell by key, of the anchors too.
    anchors : sequence of Cell
        Run at the start of this sitting, if there is anything to measure at all; each once before
        it counts, as the first run of an application waits for the disk that its libraries are on.
    elsewhere : mapping, optional
        Rows of the history by key that count as recorded, though they are not in ``folder``.
    stop_after_s : float, optional
        No run is begun that is not expected to end within so many seconds from now.
    repeat_noisy_s : float, optional
        Noisy runs are repeated only so many seconds long.
    parallel : int
        So many runs at a time, each on cores of its own; those that need more come afterwards.
    probes : Probes, optional
        Speeds of the machine, if known; measured otherwise.
    on_record : callable, optional
        Called with the folder of each run after it was recorded, one at a time.

    Raises
    ------
    RunError
        If a volume or a container is missing, another campaign works on the folder, the disk is
        full, or an application fails time after time.
    """
    begun = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with driver_lock(folder):
        for left in folder.glob(PARTIAL + "*"):
            sweep(left) if left.is_dir() else left.unlink()
        known = {**(elsewhere or {}), **record_rows(folder)}
        missing = missing_cells(cells, known, noisy=repeat_noisy_s is None or repeat_noisy_s > 0)
        for cell in missing.values():
            if cell.volume_id and not paths[cell.volume_id].is_file():
                then = "the images have changed: run `dvc repro catalogue`"
                raise RunError("no such volume", paths[cell.volume_id], then)
        for name, configuration in {(c.app, c.configuration): None for c in missing.values()}:
            check_container(choose(apps, name), configuration)
        if recorded := sum(key in known for key in cells):
            print(f"voxcast: {recorded} of {len(cells)} runs are on record", file=sys.stderr)
        if not missing:
            return Progress([], 0, 0.0)
        sitting = open_sitting(folder, {str(row["sitting"]) for row in known.values()}, probes)
        first = [
            dataclasses.replace(cell, repeat=cell.repeat + sitting.number) for cell in anchors
        ]
        missing = {**{cell.key: cell for cell in first}, **missing}
        times = _times_of(missing, expected_s or {})
        deadline = None if stop_after_s is None else begun + stop_after_s
        beginning_s = 2 * sum(times[cell.key] for cell in first)
        if deadline is not None and time.monotonic() + beginning_s > deadline:
            took = format_seconds(beginning_s)
            print(f"voxcast: too short: a sitting begins with runs of {took}", file=sys.stderr)
            return Progress([], len(missing) - len(first), sum(times.values()))
        recorder = Recorder(
            folder, apps, paths, recipes or {}, conditions or Conditions(), sitting
        )
        with CellQueue(
            missing,
            times,
            deadline=deadline,
            repeat_until=None if repeat_noisy_s is None else begun + repeat_noisy_s,
        ) as queue:
            for cell in first:
                recorder.warm_up(cell)
            _work(queue, recorder, parallel, on_record)
            return Progress(queue.made, queue.left(), queue.left_s())


def _times_of(cells: Mapping[str, Cell], expected_s: Mapping[str, float]) -> dict[str, float]:
    """Return the expected seconds of each cell; one that was made of another takes as long."""
    times = {}
    for key, cell in cells.items():
        origin = cell.repeat % NOISY_REPEAT if cell.repeat < ANCHOR_REPEAT else ANCHOR_REPEAT
        first = dataclasses.replace(cell, repeat=origin).key
        times[key] = expected_s.get(key, expected_s.get(first, 1.0))
    return times


def missing_cells(
    cells: Mapping[str, Cell], known: Mapping[str, Mapping[str, Any]], *, noisy: bool = True
) -> dict[str, Cell]:
    """Return the cells that have no record, then those to repeat because theirs is noisy."""
    missing = {key: cell for key, cell in cells.items() if key not in known}
    for key, cell in cells.items() if noisy else ():
        if key in known and known[key]["noisy"] and cell.repeat < NOISY_REPEAT:
            repeated = again(cell)
            if (name := repeated.key) not in known:
                missing[name] = repeated
    return missing


def _work(
    queue: CellQueue,
    recorder: Recorder,
    parallel: int,
    on_record: Callable[[Path], None] | None,
) -> None:
    """Take cells from the queue until it gives no more, on one or several sets of cores."""
    sets = core_sets(sorted(os.sched_getaffinity(0)), parallel)
    failures: dict[str, int] = {}

    def work(core_set: Sequence[int] | None, widest: int | None) -> None:
        while (taken := queue.take(widest)) is not None:
            key, cell = taken
            began = time.monotonic()
            profile = recorder.record(cell, key, core_set)
            run = recorder.folder / key
            with queue.finished(key, cell, time.monotonic() - began, profile.noisy, run):
                if on_record is not None:
                    on_record(run)
                failed = failures.get(cell.app, 0) + 1 if profile.outcome == "failed" else 0
                failures[cell.app] = failed
            if failed == FAILURES:
                then = f"mend it, remove {run} and its like, and run the same command again"
                raise RunError(
                    f"{failed} runs of {cell.app} one after the other failed", run, then
                )

    if len(sets) > 1:
        with ThreadPoolExecutor(len(sets)) as pool:
            try:
                workers = [pool.submit(work, cores, len(cores)) for cores in sets]
                for worker in wait(workers, return_when=FIRST_EXCEPTION).done:
                    worker.result()
            except BaseException:
                queue.close()
                recorder.stop()
                raise
    work(None, None)


def core_sets(cores: Sequence[int], parallel: int) -> list[list[int]]:
    """Return ``parallel`` sets of equally many cores, none in two of them.

    Raises
    ------
    RunError
        If there are fewer cores than sets, or there is to be no set.

    Examples
    --------
    >>> core_sets([0, 1, 2, 3, 4], 2)
    [[0, 1], [2, 3]]
    """
    if not 1 <= parallel <= len(cores):
        raise RunError(f"asks for {parallel} runs at a time, there are {len(cores)} cores here")
    each = len(cores) // parallel
    return [list(cores[n * each : (n + 1) * each]) for n in range(parallel)]
