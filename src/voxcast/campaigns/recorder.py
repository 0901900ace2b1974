"""Recording one cell: its run is measured, and the complete record is moved into place at the end.

A run writes to a folder ``.partial-<key>-…``; renaming that to ``<key>`` makes it a record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import shutil
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.apps.app import choose, command, container_facts, environment
from voxcast.apps.staging import staged
from voxcast.campaigns.settings import Conditions
from voxcast.errors import RunError
from voxcast.files import PARTIAL, commit_folder, json_text, remove_folder, text_tail
from voxcast.history.run_folders import RECORD_FILE, TRACES
from voxcast.profiling.leader import LOG_FILE
from voxcast.profiling.runner import measure, sweep
from voxcast.records import as_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from voxcast.campaigns.sittings import Sitting
    from voxcast.profiling.metronome import Metronome
    from voxcast.records import App, Cell, Profile

logger = logging.getLogger(__name__)

KEPT_SUFFIXES = (".json", ".tsv", ".csv", ".txt")  # small results; volumes are not kept
FULL_BYTES = 1_000_000


@dataclass
class Recorder:
    """Makes records in one folder, under the same conditions; several threads may use it.

    `paths` and `recipes` are by volume id. A volume that was not generated has no recipe.
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

    def record(
        self,
        cell: Cell,
        key: str,
        core_set: Sequence[int] | None = None,
        stop_at: float | None = None,
        metronome: Metronome | None = None,
    ) -> Profile | None:
        """Measure ``cell`` and write its record to the folder ``key``.

        Parameters
        ----------
        core_set : sequence of int, optional
            The CPUs that the run may use, where others run beside it; all of ours by default.
        stop_at : float, optional
            Time of the monotonic clock at which the run is stopped and not recorded.
        metronome : Metronome, optional
            Of this thread; times kernels beside the run.

        Returns
        -------
        Profile or None
            None if the run was stopped at ``stop_at``.

        Raises
        ------
        RunError
            If the disk is full, or the application cannot be started.
        """
        final, conditions = self.folder / key, self.conditions
        if stop_at is not None:
            left_s = max(0.0, stop_at - time.monotonic())
            if conditions.time_limit_s is None or left_s < conditions.time_limit_s:
                conditions = dataclasses.replace(conditions, time_limit_s=left_s)
        with self.run_folder(self._partial(key)) as partial:
            profile = self.measure(cell, partial, conditions, core_set, metronome)
            if profile.outcome == "timeout" and conditions is not self.conditions:
                return None  # stopped by our deadline and not by a limit of the run
            if profile.outcome != "completed":
                where = f"recorded as such, see {final / LOG_FILE}"
                logger.warning("%s; %s", failure_line(cell, profile, partial), where)
            self.write_record(cell, profile, partial, final)
            _commit(partial, final)
        return profile

    def measure(
        self,
        cell: Cell,
        partial: Path,
        conditions: Conditions,
        core_set: Sequence[int] | None = None,
        metronome: Metronome | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> Profile:
        """Measure ``cell`` in ``partial``, a folder of `run_folder`; nothing is recorded.

        `stopped` is that of `voxcast.profiling.runner.measure`.

        Raises
        ------
        RunError
            As `record`.
        """
        app, image = self._app_and_image(cell)
        with self._runs_in(partial):
            profile = measure_app(
                app, image, partial, cell, conditions,
                core_set=core_set, metronome=metronome, stopped=stopped,
            )  # fmt: skip
        if profile.outcome != "completed":
            _refuse_full_disk(partial, self.folder)
        return profile

    def write_record(self, cell: Cell, profile: Profile, partial: Path, final: Path) -> None:
        """Make a measured run the record that it is once ``partial`` is renamed to ``final``.

        The caller syncs ``partial`` before.
        """
        app, image = self._app_and_image(cell)
        _drop_volumes(partial / "out")
        record = {
            "cell": as_fields(cell),
            "profile": as_fields(profile),
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
        (partial / RECORD_FILE).write_text(json_text(record), encoding="utf-8")

    def warm_up(self, cell: Cell) -> None:
        """Run ``cell`` unrecorded, so that its files are in memory for recorded runs."""
        app, image = self._app_and_image(cell)
        with self.run_folder(self._partial("warm-up")) as partial:
            measure_app(app, image, partial, cell, self.conditions)

    def stop(self) -> None:
        """Stop the runs of other threads, unrecorded; no run is started afterwards."""
        with self._lock:
            self._stopped = True
            for partial in self._running:
                with contextlib.suppress(OSError):  # its own thread may be writing there
                    sweep(partial)

    def _app_and_image(self, cell: Cell) -> tuple[App, Path | None]:
        app = choose(self.apps, cell.app)
        return app, self.paths[cell.volume_id] if app.input == "volume" else None

    def _partial(self, name: str) -> Path:
        return self.folder / f"{PARTIAL}{name}-{uuid.uuid4().hex[:8]}"

    @contextlib.contextmanager
    def run_folder(self, partial: Path) -> Iterator[Path]:
        """Make a folder for one run; it is removed after the block unless it was renamed.

        Raises
        ------
        RunError
            If the disk is full.
        """
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
        """Allow `stop` to end the run of the block, but not while its record is written."""
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
    propose_phases: Callable[[Sequence[str]], Mapping[str, str]] | None = None,
    metronome: Metronome | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Profile:
    """Run ``app`` as ``cell`` describes; results go to the folder ``out`` of ``folder``.

    Parameters
    ----------
    propose_phases : callable, optional
        Returns patterns of phases for the lines of the log, for an application that has none.
    metronome : Metronome, optional
        Of this thread; times kernels beside the run.
    stopped : callable, optional
        As in `voxcast.profiling.runner.measure`.
    """
    configuration = cell.configuration
    limits_bytes = (configuration.mem_limit_bytes, conditions.mem_limit_bytes)
    limit_bytes = min(filter(None, limits_bytes), default=None)
    out, parameters = folder / "out", cell.parameters
    with staged(app, image, out, configuration):
        return measure(
            command(app, image, out, configuration, parameters, memory_bytes=limit_bytes),
            environment(configuration),
            folder,
            cpus=configuration.cpus,
            gpus=configuration.gpus,
            time_limit_s=conditions.time_limit_s,
            mem_limit_bytes=limit_bytes,
            stall_s=conditions.stall_s,
            phase_patterns=app.phase_patterns or propose_phases,
            verify_gpu=app.verify_gpu,
            core_set=core_set,
            sample_hz=conditions.sample_hz,
            metronome=metronome,
            stopped=stopped,
        )


def log_tail(folder: Path) -> str:
    """Return the end of a run's log."""
    return text_tail(folder / LOG_FILE)


def failure_line(cell: Cell, profile: Profile, folder: Path) -> str:
    """Return one line on a run that did not complete."""
    subject = f" sub-{cell.subject}" if cell.subject else ""
    where = f"{cell.app}{subject}, {cell.configuration.label}"
    last_line = log_tail(folder).strip().splitlines()[-1:]
    reason = f"{profile.outcome} ({last_line[0]})" if last_line else profile.outcome
    return f"{where}: {reason}"


def _commit(partial: Path, final: Path) -> None:
    if final.exists():  # a broken record: complete ones are not measured again
        shutil.rmtree(final)
    commit_folder(partial, final)


def _drop_volumes(out: Path) -> None:
    """Remove all but small results, and traces of communication in their folder."""
    for path in out.rglob("*"):
        if path.is_relative_to(out / TRACES):
            continue
        if path.is_file() and not (path.suffix in KEPT_SUFFIXES and path.stat().st_size < 10**6):
            try:
                path.unlink()
            except PermissionError:  # in a folder that the application made read-only
                path.parent.chmod(0o700)
                path.unlink()


def _refuse_full_disk(partial: Path, folder: Path) -> None:
    """Raise rather than record a failure that was caused by a full disk."""
    if (
        os.strerror(errno.ENOSPC) in log_tail(partial)
        or shutil.disk_usage(partial).free < FULL_BYTES
    ):
        raise _full_disk(folder)


def _full_disk(folder: Path) -> RunError:
    then = "free some space and run the same command again; no finished run is lost"
    return RunError("no space left on the device", folder, then)
