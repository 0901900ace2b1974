"""One cell, measured and put on record: the record is there, whole, at the end, and not before.

A run is made in a folder ``.partial-<key>-…``; renaming it to ``<key>`` is what makes it a record.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.apps.launch import choose, command, container_facts, environment
from voxcast.apps.staging import staged
from voxcast.errors import RunError
from voxcast.files import PARTIAL, commit_folder, remove_folder, write_json
from voxcast.history.run_folders import RECORD_FILE
from voxcast.profiling.leader import LOG_FILE
from voxcast.profiling.runner import measure, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from voxcast.campaigns.sittings import Sitting
    from voxcast.records import App, Cell, Profile

KEPT_SUFFIXES = (".json", ".tsv", ".csv", ".txt")  # small results; volumes are not kept
FULL_BYTES = 1_000_000


@dataclass(frozen=True)
class Conditions:
    """How every run of a campaign is measured; None for no limit."""

    time_limit_s: float | None = None
    stall_s: float | None = None
    sample_hz: float = 10.0


@dataclass
class Recorder:
    """Makes records in one folder, under the same conditions; several threads may use it.

    `paths` and `recipes` are by volume id; a volume that was not generated has no recipe.
    """

    folder: Path
    apps: Mapping[str, App]
    paths: Mapping[str, Path]
    recipes: Mapping[str, dict[str, Any]]
    conditions: Conditions
    sitting: Sitting
    _running: set[Path] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def record(self, cell: Cell, key: str, core_set: Sequence[int] | None = None) -> Profile:
        """Measure ``cell`` and leave its record in the folder ``key``.

        Parameters
        ----------
        core_set : sequence of int, optional
            The CPUs to take its own from, where others run beside it; all of ours by default.

        Raises
        ------
        RunError
            If the disk is full, or the application cannot be started.
        """
        app, image = self._app_and_image(cell)
        final = self.folder / key
        with self._partial(key) as partial:
            with self._runs_in(partial):
                profile = measure_app(
                    app, image, partial, cell, self.conditions, core_set=core_set
                )
            if profile.outcome != "completed":
                _refuse_full_disk(partial)
                print(f"voxcast: {what_happened(cell, profile, partial, final)}", file=sys.stderr)
            _drop_volumes(partial / "out")
            record = {
                "cell": cell.to_record(),
                "profile": profile.to_record(),
                "app_version": cell.app_version,
                "host": self.sitting.host,
                "probes": self.sitting.probes,
                "sitting": self.sitting.name,
                "recipe": self.recipes.get(cell.volume_id),
                "container": container_facts(app, cell.configuration),
                "command": command(app, image, final / "out", cell.configuration, cell.parameters),
                "voxcast_version": voxcast.__version__,
                "started_at": profile.started_at,
            }
            write_json(partial / RECORD_FILE, record)
            _commit(partial, final)
        return profile

    def warm_up(self, cell: Cell) -> None:
        """Run ``cell`` unrecorded, so that what it reads is in memory for those that count."""
        app, image = self._app_and_image(cell)
        with self._partial("warm-up") as partial:
            measure_app(app, image, partial, cell, self.conditions)

    def stop(self) -> None:
        """End what other threads measure at this moment, unrecorded; nothing is begun after it."""
        with self._lock:
            self._stopped = True
            for partial in self._running:
                with contextlib.suppress(OSError):  # its own thread may be writing there
                    sweep(partial)

    def _app_and_image(self, cell: Cell) -> tuple[App, Path | None]:
        app = choose(self.apps, cell.app)
        return app, self.paths[cell.volume_id] if app.input == "volume" else None

    @contextlib.contextmanager
    def _partial(self, name: str) -> Iterator[Path]:
        """Give a folder for one run, gone after the block unless it was renamed."""
        partial = self.folder / f"{PARTIAL}{name}-{uuid.uuid4().hex[:8]}"
        try:
            (partial / "out").mkdir(parents=True)
            yield partial
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full_disk(self.folder) from None
            raise
        finally:
            with contextlib.suppress(OSError):
                remove_folder(partial)

    @contextlib.contextmanager
    def _runs_in(self, partial: Path) -> Iterator[None]:
        """Say that a run may be stopped for the block, and not while its record is written."""
        with self._lock:
            if self._stopped:
                raise RunError("stopped", partial)
            self._running.add(partial)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(partial)
                if self._stopped:
                    raise RunError("stopped", partial)


def measure_app(
    app: App,
    image: Path | None,
    folder: Path,
    cell: Cell,
    conditions: Conditions,
    core_set: Sequence[int] | None = None,
) -> Profile:
    """Run ``app`` as ``cell`` says, results in the folder ``out`` of ``folder``; see `measure`."""
    configuration = cell.configuration
    with staged(app, image, folder / "out", configuration):
        return measure(
            command(app, image, folder / "out", configuration, cell.parameters),
            environment(configuration),
            folder,
            cpus=configuration.cpus,
            gpus=configuration.gpus,
            time_limit_s=conditions.time_limit_s,
            mem_limit_bytes=configuration.mem_limit_bytes,
            stall_s=conditions.stall_s,
            phase_patterns=app.phase_patterns,
            verify_gpu=app.verify_gpu,
            core_set=core_set,
            sample_hz=conditions.sample_hz,
        )


def log_tail(folder: Path) -> str:
    """Return the last lines that a run wrote."""
    with (folder / LOG_FILE).open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 10_000))
        return log.read().decode("utf-8", errors="replace")


def what_happened(cell: Cell, profile: Profile, folder: Path, final: Path) -> str:
    """Return one line on a run that did not complete."""
    subject = f" sub-{cell.subject}" if cell.subject else ""
    where = f"{cell.app}{subject}, {cell.configuration.label}"
    said = log_tail(folder).strip().splitlines()[-1:]
    reason = f"{profile.outcome} ({said[0]})" if said else profile.outcome
    return f"{where}: {reason}; recorded as such, see {final / LOG_FILE}"


def _commit(partial: Path, final: Path) -> None:
    if final.exists():  # without a good record, or we would not be here
        shutil.rmtree(final)
    commit_folder(partial, final)


def _drop_volumes(out: Path) -> None:
    for path in out.rglob("*"):
        if path.is_file() and not (path.suffix in KEPT_SUFFIXES and path.stat().st_size < 10**6):
            try:
                path.unlink()
            except PermissionError:  # in a folder that the application closed behind itself
                path.parent.chmod(0o700)
                path.unlink()


def _refuse_full_disk(partial: Path) -> None:
    """Raise rather than record a failure that was the disk's and not the application's."""
    said = os.strerror(errno.ENOSPC) in log_tail(partial)
    if said or shutil.disk_usage(partial).free < FULL_BYTES:
        raise _full_disk(partial.parent)


def _full_disk(folder: Path) -> RunError:
    then = "free some and run the same command again, nothing finished is lost"
    return RunError("no space left on the device", folder, then)
