"""Campaigns on this machine: which cells of a plan are missing, measuring them, and their state.

Only what `voxcast.measure.record` has renamed into place counts as recorded, so there is never
half a record, and the same command continues with the cells that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import choose
from voxcast.apps.checks import check_startable
from voxcast.errors import RunError
from voxcast.files import PARTIAL, HeldError, process_lock
from voxcast.measure.host import Probes
from voxcast.measure.leftovers import sweep, sweep_abandoned
from voxcast.measure.local import Kind, LocalRunner, TimeLeft, core_sets, kind_of, repeat_of
from voxcast.measure.plan import CampaignPlan, CampaignSettings
from voxcast.measure.record import Failures, Recorder, base_of, log_tail, open_sitting
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT, App, Cell, Run
from voxcast.runs.series import runs_in, write_tables_of
from voxcast.runs.table import ALLOCATION, TASK

if TYPE_CHECKING:
    import pandas as pd

MAX_SMALLEST = 3
LOCK_PATIENCE_S = 3.0  # a driver that was just killed may hold its lock a little longer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Result of a sitting: the folders of its runs, and how many cells are left."""

    runs: list[Path]
    left: int
    left_s: float


def run_campaign(
    settings: CampaignSettings,
    plan: CampaignPlan,
    *,
    recorded: Mapping[str, Run] | None = None,
    probes: Probes | None = None,
    on_record: Callable[[Path], None] | None = None,
) -> Progress:
    """Measure the cells of ``plan`` that have no record yet, and repeat noisy runs.

    Failed runs of the folder are tried once more, after all others, see
    `voxcast.measure.status.tried_again`. Each local run is made once unrecorded before it is
    measured, as the first run of an application reads its libraries from disk.

    Parameters
    ----------
    recorded : mapping, optional
        Runs by key that count as recorded, though they are not in the run folder.
    probes : Probes, optional
        Speeds of the machine, if known; measured otherwise.
    on_record : callable, optional
        Called with the folder of each run after it was recorded, one at a time.

    Raises
    ------
    RunError
        If a volume or a container is missing, another campaign writes to the folder, the disk is
        full, or an application fails on image after image and no run of it ever completed.
    """
    start, folder = time.monotonic(), settings.runs
    folder.mkdir(parents=True, exist_ok=True)
    sweep_abandoned()
    with driver_lock(folder):
        for partial in folder.glob(PARTIAL + "*"):
            sweep(partial) if partial.is_dir() else partial.unlink()
        elsewhere, here = recorded or {}, runs_in(folder)
        again = tried_again(
            plan.cells.keys() - elsewhere.keys(), here, settings.conditions.time_limit_s
        )
        runs = {**elsewhere, **here}
        repeat_noisy_s = settings.repeat_noisy_s
        missing = missing_cells(
            plan.cells, runs, again, noisy=repeat_noisy_s is None or repeat_noisy_s > 0
        )
        _check_runnable(missing, plan.paths, settings.apps)
        if count := len((plan.cells.keys() & runs.keys()) - again):
            logger.info("%d of %d runs are on record", count, len(plan.cells))
        if again:
            logger.info("%d runs that failed or were stopped are tried once more", len(again))
        if not missing:
            return Progress([], 0, 0.0)
        sitting = open_sitting(
            folder, {run.sitting for run in runs.values()}, probes, settings.host
        )
        local_runs = [
            dataclasses.replace(cell, repeat=cell.repeat + sitting.number)
            for cell in plan.local_runs
        ]
        missing = {**{cell.key: cell for cell in local_runs}, **missing}
        times = _times_of(missing, plan.expected_s)
        deadline = start + (math.inf if settings.stop_after_s is None else settings.stop_after_s)
        first_s = 2 * sum(times[cell.key] for cell in local_runs)
        if first_s and time.monotonic() + first_s > deadline:
            took = format_seconds(first_s)
            logger.warning("the time is too short: a sitting starts with local runs of %s", took)
            return Progress([], len(missing) - len(local_runs), sum(times.values()))
        recorder = Recorder(
            folder, settings.apps, plan.paths, plan.recipes, settings.conditions, sitting
        )
        failures = Failures(here.values())
        stop_at = deadline if settings.stop_running and deadline < math.inf else None

        def on_end(cell: Cell, run: Run) -> None:
            if on_record is not None:
                on_record(folder / run.cell_key)
            failures.count(cell, run.outcome)
            failures.check(cell, folder / run.cell_key)

        runner = LocalRunner(
            missing,
            times,
            lambda cell, cores, metronome: recorder.record(cell, cores, stop_at, metronome),
            deadline=deadline,
            repeat_until=start + (math.inf if repeat_noisy_s is None else repeat_noisy_s),
            on_end=on_end,
            metronome=settings.conditions.metronome,
        )
        sets = core_sets(sorted(os.sched_getaffinity(0)), settings.parallel)
        for cell in local_runs:
            recorder.warm_up(cell)
        runner.run(sets, stop=recorder.stop)
        if repeat_noisy_s is not None:  # a repeat for which the time did not suffice is not due
            runner.drop_repeats()
        return Progress([folder / key for key in runner.ended], runner.left, runner.left_s)


def _check_runnable(
    cells: Mapping[str, Cell], paths: Mapping[str, Path], apps: Mapping[str, App]
) -> None:
    """Check volumes, programs and containers before any run is started."""
    for cell in cells.values():
        if cell.volume_id and not paths[cell.volume_id].is_file():
            then = "the images have changed: run `dvc repro catalogue`"
            raise RunError("no such volume", paths[cell.volume_id], then)
    for name, configuration in {(c.app, c.configuration): None for c in cells.values()}:
        check_startable(choose(apps, name), configuration)


def _times_of(cells: Mapping[str, Cell], expected_s: Mapping[str, float]) -> dict[str, float]:
    """Return the expected seconds of each cell; a repeat takes as long as the original."""
    times = {}
    for key, cell in cells.items():
        origin = cell.repeat % NOISY_REPEAT if cell.repeat < ANCHOR_REPEAT else ANCHOR_REPEAT
        first = dataclasses.replace(cell, repeat=origin).key
        times[key] = expected_s.get(key, expected_s.get(first, 1.0))
    return times


def measure_smallest(settings: CampaignSettings, plan: CampaignPlan) -> Run | None:
    """Measure and record the run of ``plan`` with the smallest image, if it is not on record.

    It gives the order of magnitude of an application that was never measured. If it fails, its
    image may be the reason: the next smallest is tried, up to `MAX_SMALLEST` of them. Images that
    failed before come last.

    Returns
    -------
    Run or None
        The last run; None if the plan is empty.
    """
    runs, run = runs_in(settings.runs), None
    failed = {c.volume_id for k, c in plan.cells.items()
              if k in runs and runs[k].outcome == "failed"}  # fmt: skip
    ordered = sorted(
        plan.cells.items(),
        key=lambda entry: (entry[1].volume_id in failed, plan.expected_s.get(entry[0], 1.0)),
    )
    by_volume: dict[str, tuple[str, Cell]] = {}
    for key, cell in ordered:
        by_volume.setdefault(cell.volume_id, (key, cell))
    settings = dataclasses.replace(settings, stop_after_s=None, repeat_noisy_s=0.0)
    for key, cell in list(by_volume.values())[:MAX_SMALLEST]:
        run_campaign(settings, dataclasses.replace(plan, cells={key: cell}, local_runs=[]))
        run = runs_in(settings.runs).get(key)
        if run is None or run.outcome != "failed":
            break
    return run


def profile_device(
    device: str, settings: CampaignSettings, plan: CampaignPlan, tables: Path
) -> pd.DataFrame:
    """Measure what is missing of the campaign on ``device`` and write the tables of all its runs.

    Where nothing can be measured the tables are empty, and the notes in the first say why. The
    folders of the runs are kept apart from the tables, which are the outputs of a stage: DVC
    replaces those before each experiment.

    Parameters
    ----------
    device : str
        Name of the device.
    settings, plan : CampaignSettings, CampaignPlan
        Of this device alone.
    tables : Path
        Folder of the tables.

    Returns
    -------
    DataFrame
        The table of runs.
    """
    notes = list(plan.notes)
    if not settings.configurations:
        notes.append(
            f"{device}: the configuration does not name it; to measure on this device set "
            f"-S 'device=[cpu,{device}]', or add it to `devices` of your application"
        )
    elif not any(device in app.devices for app in settings.apps.values()):
        notes.append(f"{device}: no application of this campaign can use it")
    for note in notes:
        logger.info(note)
    progress = run_campaign(settings, plan)
    if progress.left:
        notes.append(
            f"{device}: stopped at its budget with {progress.left} runs left, about "
            f"{format_seconds(progress.left_s)}; continue with dvc repro -f -s profile@{device}"
        )
        logger.warning(notes[-1])
    return write_tables_of(settings.runs, tables, notes, runs_left=progress.left)


@contextlib.contextmanager
def driver_lock(folder: Path) -> Iterator[None]:
    """Allow one driver at a time in ``folder``; the lock file is beside it.

    Raises
    ------
    RunError
        If another process holds it, naming that process.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(process_lock(_lock_file(folder), LOCK_PATIENCE_S))
        except HeldError as held:
            reason = f"another campaign (process {held.pid}) works here"
            raise RunError(reason, folder, "wait for it, or stop it") from None
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a driver works in ``folder``; nothing is created."""
    try:
        with _lock_file(folder).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no lock was ever taken here
    return False


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


# Columns that agree in runs which differ by their repeat alone.
SAME_RUN = (*TASK, *ALLOCATION)
MAX_CAUSE_CHARACTERS = 160


def tried_again(
    keys: Iterable[str], runs: Mapping[str, Run], time_limit_s: float | None
) -> set[str]:
    """Return which of ``keys`` have a record that is worth another try.

    These are failed runs, and runs stopped at a shorter time than the limit is now: the user has
    started the campaign again and may have mended the cause. ``time_limit_s`` is the present limit
    of a run; None without one.
    """
    again = set()
    for key in keys:
        run = runs.get(key)
        if run is not None and (
            run.outcome == "failed"
            or (
                run.outcome == "timeout"
                and run.limit_s is not None
                and (time_limit_s is None or run.limit_s < time_limit_s)
            )
        ):
            again.add(key)
    return again


def missing_cells(
    cells: Mapping[str, Cell],
    runs: Mapping[str, Run],
    again: Collection[str] = (),
    *,
    noisy: bool = True,
) -> dict[str, Cell]:
    """Return the cells without a record, then those tried again, then repeats of noisy runs.

    ``runs`` are on record by key; the keys in ``again`` count as missing. With ``noisy=False``
    nothing is repeated.
    """
    missing = {key: cell for key, cell in cells.items() if key not in runs}
    missing |= {key: cell for key, cell in cells.items() if key in again and key in runs}
    for key, cell in cells.items() if noisy else ():
        if key in missing or cell.repeat >= NOISY_REPEAT:
            continue
        # A run that did not complete has no time to be measured better.
        if runs[key].noisy and runs[key].outcome == "completed":
            repeated = repeat_of(cell)
            if (name := repeated.key) not in runs:
                missing[name] = repeated
    return missing


def runs_elsewhere(
    cells: Mapping[str, Cell], history: pd.DataFrame, *, any_host: bool = False
) -> dict[str, Run]:
    """Return the runs of a recorded history by cell key, to resume on another machine.

    With ``any_host`` a run on other hardware counts too. Whether it was noisy does then not
    matter, as it cannot be repeated here.
    """
    values = history.astype(object).where(history.notna(), None)
    names = [str(name) for name in history.columns]
    runs = [Run(**dict(zip(names, row, strict=True))) for row in values.to_numpy()]
    by_key = {run.cell_key: run for run in runs}
    if any_host:
        alike = {(_same_run(run), run.repeat): run for run in runs}
        for key, cell in cells.items():
            equal_run = alike.get((_same_run(base_of(cell)), cell.repeat))
            if equal_run is not None and key not in by_key:
                by_key[key] = dataclasses.replace(equal_run, noisy=False)
    return by_key


def overview(
    cells: Mapping[str, Cell],
    expected_s: Mapping[str, float],
    runs: Mapping[str, Run],
    again: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return one row for each application, scale and allocation of a campaign.

    Parameters
    ----------
    cells, expected_s : mapping
        Of the plan, by key.
    runs : mapping
        On record, by key. Runs of other cells (repeats of noisy runs, local runs) are counted
        apart.
    again : collection of str
        Keys of runs that are tried again: their outcome is counted, but they are not done.

    Returns
    -------
    list of dict
        ``app``, ``scale``, ``device``, ``cpus``; ``done`` and ``left``, planned runs and, in the
        second, repeats of noisy ones; ``left_s``; ``repeats`` and ``anchors``, runs on record
        beside the planned ones; ``outcomes``, ``noisy``, and the median coefficients of variation
        of repeats, ``cv_runtime`` and ``cv_cpu`` with ``repeated``, the number of runs that were
        repeated.
    """
    missing = missing_cells(cells, runs, again)
    every = {**cells, **missing}
    times = TimeLeft(every, expected_s)
    groups: dict[Kind, dict[str, Any]] = {
        kind_of(cell): {
            "done": 0, "left": 0, "left_s": 0.0, "repeats": 0, "anchors": 0, "outcomes": {},
            "noisy": 0,
        }
        for cell in every.values()
    }  # fmt: skip
    for key, cell in every.items():
        if (run := runs.get(key)) is not None:
            group = groups[kind_of(cell)]
            if key not in missing:
                times.finish(key, cell, run.runtime_s or 0.0)
                group["done"] += 1
                group["noisy"] += run.noisy
            group["outcomes"][run.outcome] = group["outcomes"].get(run.outcome, 0) + 1
    for key, cell in missing.items():
        groups[kind_of(cell)]["left"] += 1
        groups[kind_of(cell)]["left_s"] += times.cell_s(key, cell)
    for key, run in runs.items():
        if key not in cells and run.repeat >= NOISY_REPEAT and _kind(run) in groups:
            groups[_kind(run)]["anchors" if run.repeat >= ANCHOR_REPEAT else "repeats"] += 1
    noise = repeat_noise(runs.values())
    names = ("app", "scale", "device", "cpus")
    none = {"repeated": 0, "cv_runtime": None, "cv_cpu": None}
    return [
        {**dict(zip(names, kind, strict=True)), **values, **noise.get(kind, none)}
        for kind, values in sorted(groups.items())
    ]


def repeat_noise(runs: Iterable[Run]) -> dict[Kind, dict[str, Any]]:
    """Return the median coefficients of variation of quiet repeats, by group of `overview`.

    Repeats are of one machine; local runs, which are days apart, and repeats of noisy runs are
    excluded.
    """
    repeats: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        if run.outcome == "completed" and not run.noisy and run.repeat < NOISY_REPEAT:
            repeats.setdefault((*_same_run(run), run.host_id), []).append(run)
    cvs_by_group: dict[Kind, list[tuple[float, float]]] = {}
    for same in repeats.values():
        if len(same) > 1:
            cvs = _cv([r.runtime_s or 0.0 for r in same]), _cv([r.cpu_s or 0.0 for r in same])
            cvs_by_group.setdefault(_kind(same[0]), []).append(cvs)
    return {
        kind: {
            "repeated": len(cvs),
            "cv_runtime": statistics.median(wall for wall, _ in cvs),
            "cv_cpu": statistics.median(cpu for _, cpu in cvs),
        }
        for kind, cvs in cvs_by_group.items()
    }


def _cv(values: list[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if mean else 0.0


def _kind(run: Run) -> Kind:
    return run.app, run.scale, run.device, run.cpus


def _same_run(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in SAME_RUN)


@dataclass(frozen=True)
class Remaining:
    """What a campaign would measure now, and for how long.

    Attributes
    ----------
    total, left : int
        Runs of the plan, and those that are not on record, or are tried again.
    left_s : float
        Expected seconds of the runs left.
    failed, failed_s : int, float
        Of the runs left, how many failed before; their expected seconds.
    shortest_s : float
        Expected seconds of the shortest of them; 0 if none is left.
    repeats, repeats_s : int, float
        Runs that come in addition if other work disturbs all that are left, with those that it
        disturbed before; their expected seconds. 0 if none is left.
    other_version : bool
        Whether the runs on record are all of another version of an application, so that its times
        are too.
    trusted : bool
        Whether the times are based on a run on record, or stated by the application.
    """

    total: int
    left: int
    left_s: float
    failed: int
    failed_s: float
    shortest_s: float
    repeats: int
    repeats_s: float
    other_version: bool
    trusted: bool


def remaining(settings: CampaignSettings, plan: CampaignPlan) -> Remaining:
    """Return what is left of ``plan`` beside the records in the folder of its runs."""
    runs = runs_in(settings.runs)
    again = tried_again(plan.cells, runs, settings.conditions.time_limit_s)
    missing = missing_cells(plan.cells, runs, again, noisy=False)
    times = TimeLeft(plan.cells, plan.expected_s)
    for key, cell in plan.cells.items():
        if key not in missing:
            times.finish(key, cell, runs[key].runtime_s or 0.0)
    expected_s = [times.cell_s(key, cell) for key, cell in missing.items()]
    failed = [key for key in again if runs[key].outcome == "failed"]
    disturbed = {key for key, run in runs.items() if run.noisy}
    repeated_s = [
        times.cell_s(key, cell)
        for key, cell in plan.cells.items()
        if key in missing or (key in disturbed and missing and repeat_of(cell).key not in runs)
    ]
    planned = {(cell.app, cell.app_version) for cell in plan.cells.values()}
    measured = {(run.app, run.app_version) for key, run in runs.items() if key not in missing}
    of_other = {app for app, _ in measured} - {app for app, _ in measured & planned}
    other_version = bool(of_other & {app for app, _ in planned})
    stated = all(map(states_times, settings.apps.values())) and not other_version
    return Remaining(
        total=len(plan.cells),
        left=len(missing),
        left_s=sum(expected_s),
        failed=len(failed),
        failed_s=sum(times.cell_s(key, plan.cells[key]) for key in failed),
        shortest_s=min(expected_s, default=0.0),
        repeats=len(repeated_s),
        repeats_s=sum(repeated_s),
        other_version=other_version,
        trusted=len(missing) < len(plan.cells) or stated,
    )


def states_times(app: App) -> bool:
    """Return whether an application states its times, so that they are not mere defaults."""
    defaults = App.expected_startup_s, App.expected_s_per_mvoxel
    return (app.expected_startup_s, app.expected_s_per_mvoxel) != defaults


@dataclass(frozen=True)
class FailedImage:
    """An image with runs that failed; `cause` and `log` are of the last of them."""

    app: str
    subject: str
    image: str
    runs: int
    cause: str
    log: str


def failed_images(folder: Path, plan: CampaignPlan) -> list[FailedImage]:
    """Return the images with failed runs of ``plan`` in ``folder``, in the order of their runs."""
    runs = runs_in(folder)
    failed: dict[tuple[str, str], list[str]] = {}
    for key, cell in plan.cells.items():
        if key in runs and runs[key].outcome == "failed":
            failed.setdefault((cell.app, cell.volume_id), []).append(key)
    return [
        FailedImage(
            app,
            plan.cells[keys[-1]].subject,
            str(plan.paths.get(volume_id, "")),
            len(keys),
            cause_of(folder / keys[-1], runs[keys[-1]].exit_status),
            str(folder / keys[-1]),
        )
        for (app, volume_id), keys in failed.items()
    ]


def cause_of(run: Path, exit_status: int | None) -> str:
    """Return the last line of a run's log, and its exit status."""
    try:
        lines = log_tail(run).strip().splitlines()
    except OSError:
        lines = []
    last = "".join(c for c in lines[-1] if c.isprintable()) if lines else ""
    status = "" if exit_status is None else f"exit status {exit_status}"
    return ", ".join(part for part in (last[:MAX_CAUSE_CHARACTERS], status) if part) or "unknown"
