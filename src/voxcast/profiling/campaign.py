"""A campaign: cells measured one after the other, each recorded once, whatever interrupts it.

A run is made in a folder ``.partial-<key>-…``; renaming it to ``<key>`` is what makes it a record.
So there is never half a record, and the same command continues with the cells that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import shutil
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

import voxcast
from voxcast.apps.catalogue import choose, command, environment
from voxcast.errors import RunError, TableError
from voxcast.files import write_json
from voxcast.profiling import history
from voxcast.profiling.cells import draw_cells, expected_times, fitting
from voxcast.profiling.host import HostFacts, host_class, host_facts
from voxcast.profiling.runner import LOG_FILE, measure, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from voxcast.records import App, Cell, Configuration, Profile, Scale

KEPT_SUFFIXES = (".json", ".tsv", ".csv", ".txt")  # small results; volumes are not kept
LOCK_PATIENCE_S = 3.0  # a driver that was just killed holds its lock for some moments more
FULL_BYTES = 1_000_000


def profile_device(
    device: str,
    apps: Mapping[str, App],
    rows: pd.DataFrame,
    configurations: Sequence[Configuration],
    folder: Path,
    *,
    volumes: int,
    repeat_volumes: int,
    repeats: int,
    budget_s: float,
    time_limit_s: float,
    scale: Scale,
    seed: int,
) -> pd.DataFrame:
    """Measure what is missing of the campaign on ``device`` and write its table of profiles.

    Where nothing can be measured the table is empty and carries the reason in its notes.
    """
    facts = host_facts()
    possible, notes = fitting(configurations, facts)
    if not configurations:
        notes.append(f"{device}: not among the devices of this campaign")
    elif not any(device in app.devices for app in apps.values()):
        notes.append(f"{device}: no application of this campaign can use it")
    for note in notes:
        print(f"voxcast: {note}", file=sys.stderr)
    cells = draw_cells(
        apps,
        rows,
        possible,
        volumes=volumes,
        repeat_volumes=repeat_volumes,
        repeats=repeats,
        budget_s=budget_s,
        scale=scale,
        seed=seed,
        host_class=host_class(facts),
    )
    named = zip(rows["volume_id"].astype(str), rows["path"].astype(str), strict=True)
    run_campaign(
        cells,
        {volume: Path(path) for volume, path in named},
        folder,
        apps=apps,
        time_limit_s=time_limit_s,
        expected_s=expected_times(cells, apps, rows),
    )
    return history.write_profiles(folder, notes)


def run_campaign(
    cells: Sequence[Cell],
    paths: Mapping[str, Path],
    folder: Path,
    *,
    apps: Mapping[str, App],
    time_limit_s: float | None = None,
    expected_s: Mapping[str, float] | None = None,
    sample_hz: float = 10.0,
) -> list[Path]:
    """Measure those of ``cells`` that have no record in ``folder`` yet.

    Parameters
    ----------
    cells : sequence of Cell
        In the order to run them; a key that comes twice is measured once.
    paths : mapping
        The file of each volume id.
    folder : Path
        Gets one folder a cell; made if missing.
    expected_s : mapping, optional
        Expected seconds of a cell by key, for the time left that is shown.

    Returns
    -------
    list of Path
        The folders of the runs made now.

    Raises
    ------
    RunError
        If a volume is missing, another campaign works on the folder, or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        for left in folder.glob(history.PARTIAL + "*"):
            sweep(left) if left.is_dir() else left.unlink()
        unique = {cell.key: cell for cell in cells}
        missing = {key: cell for key, cell in unique.items() if not _is_recorded(folder / key)}
        for cell in missing.values():
            if not paths[cell.volume_id].is_file():
                then = "the images have changed: run `dvc repro catalogue`"
                raise RunError("no such volume", paths[cell.volume_id], then)
        if len(missing) < len(unique):
            known = len(unique) - len(missing)
            print(f"voxcast: {known} of {len(unique)} runs are on record", file=sys.stderr)
        facts = host_facts()
        weights = {key: (expected_s or {}).get(key, 1.0) for key in missing}
        made = []
        with tqdm(
            total=sum(weights.values()),
            disable=None if missing else True,
            bar_format="{percentage:3.0f}%|{bar:20}| {elapsed}<{remaining} {desc}",
        ) as bar:
            for number, (key, cell) in enumerate(missing.items(), 1):
                what = f"{cell.app} sub-{cell.subject}, {cell.configuration.label}"
                bar.set_description_str(f"run {number} of {len(missing)}: {what}")
                run = _record(
                    cell, apps, paths[cell.volume_id], folder, facts, time_limit_s, sample_hz
                )
                made.append(run)
                bar.update(weights[key])
    return made


def _record(
    cell: Cell,
    apps: Mapping[str, App],
    image: Path,
    folder: Path,
    facts: HostFacts,
    time_limit_s: float | None,
    sample_hz: float,
) -> Path:
    """Measure one cell; the record is there, whole, when this returns, and not before."""
    partial = folder / f"{history.PARTIAL}{cell.key}-{uuid.uuid4().hex[:8]}"
    final = folder / cell.key
    app, configuration = choose(apps, cell.app), cell.configuration
    try:
        (partial / "out").mkdir(parents=True)
        profile = measure(
            command(app, image, partial / "out", configuration, cell.parameters),
            environment(configuration),
            partial,
            cpus=configuration.cpus,
            time_limit_s=time_limit_s,
            memory_limit_bytes=configuration.memory_bytes,
            sample_hz=sample_hz,
        )
        if profile.outcome != "completed":
            _refuse_full_disk(partial)
            print(f"voxcast: {_what_happened(cell, profile, partial, final)}", file=sys.stderr)
        _drop_volumes(partial / "out")
        record = {
            "cell": dataclasses.asdict(cell),
            "profile": dataclasses.asdict(profile),
            "app_version": cell.app_version,
            "host": dataclasses.asdict(facts),
            "command": command(app, image, final / "out", configuration, cell.parameters),
            "voxcast_version": voxcast.__version__,
            "started_at": profile.started_at,
        }
        write_json(partial / history.RECORD_FILE, record)
        _commit(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def _commit(partial: Path, final: Path) -> None:
    for path in (*partial.iterdir(), partial):
        _sync(path)
    if final.exists():  # without a good record, or we would not be here
        shutil.rmtree(final)
    partial.rename(final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _drop_volumes(out: Path) -> None:
    for path in out.rglob("*"):
        if path.is_file() and not (path.suffix in KEPT_SUFFIXES and path.stat().st_size < 10**6):
            path.unlink()


def _refuse_full_disk(partial: Path) -> None:
    """Raise rather than record a failure that was the disk's and not the application's."""
    said = os.strerror(errno.ENOSPC) in _log_tail(partial)
    if said or shutil.disk_usage(partial).free < FULL_BYTES:
        then = "free some and run the same command again, nothing finished is lost"
        raise RunError("no space left on the device", partial.parent, then)


def _what_happened(cell: Cell, profile: Profile, partial: Path, final: Path) -> str:
    where = f"{cell.app} sub-{cell.subject}, {cell.configuration.label}"
    said = _log_tail(partial).strip().splitlines()[-1:]
    reason = f"{profile.outcome} ({said[0]})" if said else profile.outcome
    return f"{where}: {reason}; recorded as such, see {final / LOG_FILE}"


def _log_tail(partial: Path) -> str:
    with (partial / LOG_FILE).open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 10_000))
        return log.read().decode("utf-8", errors="replace")


def _is_recorded(run: Path) -> bool:
    if not run.exists():
        return False
    try:
        history.read_record(run)
    except TableError as error:
        print(f"voxcast: {error}; it is measured again", file=sys.stderr)
        return False
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the one lock on ``folder``; it lies beside it: the folder is a stage's output."""
    path = folder.parent / f".{folder.name}.lock"
    with path.open("a+") as lock:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.seek(0)
                    who = (
                        f"another campaign (process {lock.read().strip() or 'unknown'}) works here"
                    )
                    raise RunError(who, folder, "wait for it, or stop it") from None
                time.sleep(0.05)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
