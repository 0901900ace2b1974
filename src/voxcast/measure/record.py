"""Recording one cell: its run is measured, and the complete record is moved into place at the end.

A run writes to a folder ``.partial-<key>-…``; renaming that to ``<key>`` makes it a record. The
folder then holds ``run.json``, the samples, ``app.log`` and the small results in ``out``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import logging
import math
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.apps.app import choose, command, container_facts, environment
from voxcast.apps.containers import staged
from voxcast.apps.new import propose_phases
from voxcast.errors import RunError
from voxcast.files import (
    PARTIAL,
    canonical_json,
    commit_folder,
    json_text,
    remove_folder,
    text_tail,
)
from voxcast.images.volume import Volume
from voxcast.measure.host import HostFacts, host_facts
from voxcast.measure.metronome import Metronome
from voxcast.measure.processes import temporary_folder
from voxcast.measure.runner import LOG_FILE, PhasePatterns, measure, memory_limit
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Configuration, Phase, Run, as_fields
from voxcast.runs.series import RECORD_FILE, TRACES_FOLDER
from voxcast.runs.store import software_versions

KEPT_SUFFIXES = (".json", ".tsv", ".csv", ".txt")  # small results; volumes are not kept
KEPT_BYTES = FULL_BYTES = 1_000_000
# An application that failed on so many images, and never completed, is assumed unable to run here.
# Otherwise all of its cells would be recorded as failed within minutes.
MAX_IMAGES = 5
MAX_LINE = 160  # characters of a log's last line that are shown
MAX_LOG_LINES = 200_000  # of a trial, searched for phases

KNOWN_BEFORE = {  # fields of a run that it does not measure
    "cell_key", "app", "app_version", "parameters_json", "volume_id", "subject", "recipe_json",
    "host_id", "host_class", "node_type", "cpu_model", "probe_cpu", "probe_membw", "probe_disk",
    "device", "cpus", "gpus", "mem_limit_bytes", "scale", "repeat", "sitting", "source",
    "labels_json",
}  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sitting:
    """One stretch of measuring on one machine; `host` is as written into the records."""

    name: str
    number: int
    host: dict[str, Any]


def open_sitting(earlier: Iterable[str] = (), facts: HostFacts | None = None) -> Sitting:
    """Start a sitting.

    Parameters
    ----------
    earlier : iterable of str
        Names of the sittings on record; the new one gets the number after their highest.
    facts : HostFacts, optional
        Hardware of the machine; detected by default.
    """
    numbers = [int(n) for name in earlier if (n := name.rpartition("-")[2]).isdigit()]
    number = 1 + max(numbers, default=0)
    host = dataclasses.asdict(facts or host_facts())
    name = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}-{host['host_id']}-{number}"
    return Sitting(name, number, host)


def base_of(
    cell: Cell, sitting: Sitting | None = None, recipe: Mapping[str, Any] | None = None
) -> Run:
    """Return the facts of a run that are known before it starts."""
    configuration = cell.configuration
    facts: dict[str, Any] = {}
    if sitting is not None:
        facts = {name: sitting.host[name] for name in ("host_id", "cpu_model")}
        facts["sitting"] = sitting.name
    return Run(
        cell_key=cell.key,
        app=cell.app,
        app_version=cell.app_version,
        parameters_json=canonical_json(cell.parameters),
        volume_id=cell.volume_id,
        subject=cell.subject,
        recipe_json=canonical_json(recipe) if recipe else "",
        host_class=cell.host_class,
        node_type=configuration.node_type,
        device=configuration.device,
        cpus=configuration.cpus,
        gpus=configuration.gpus,
        mem_limit_bytes=configuration.mem_limit_bytes,
        scale=cell.scale,
        repeat=cell.repeat,
        labels_json="",
        **facts,
    )


@dataclass
class Recorder:
    """Makes records in one folder, under the same conditions; several threads may use it.

    `paths` and `recipes` are by volume id. A volume that was not generated has no recipe. Once
    `stopped` returns true the runs are stopped, unrecorded, and none is started.
    """

    folder: Path
    apps: Mapping[str, App]
    paths: Mapping[str, Path]
    recipes: Mapping[str, dict[str, Any]]
    conditions: Conditions
    sitting: Sitting
    stopped: Callable[[], bool] = lambda: False

    def record(
        self,
        cell: Cell,
        cpus: Sequence[int] | None = None,
        metronome: Metronome | None = None,
    ) -> Run:
        """Measure ``cell`` and write its record to the folder named by its key.

        Parameters
        ----------
        cpus : sequence of int, optional
            The CPUs that the run may use, where others run beside it; all of ours by default.
        metronome : Metronome, optional
            Of this thread; times kernels beside the run.

        Raises
        ------
        RunError
            If the disk is full, the application cannot be started, or the run was stopped.
        """
        final = self.folder / cell.key
        with self.run_folder(self._partial(cell.key)) as partial:
            run, phases = self.measure(cell, partial, self.conditions, cpus, metronome)
            if run.outcome == "preempted":
                raise RunError("stopped", partial)
            if run.outcome != "completed":
                ended, log = cause(run.outcome, partial), final / LOG_FILE
                logger.warning("%s: %s; recorded as such, see %s", cell.label, ended, log)
            self.write_record(cell, run, phases, partial, final)
            if final.exists():  # a broken record, or a failed run that was tried again
                shutil.rmtree(final)
            commit_folder(partial, final)
        return run

    def measure(
        self,
        cell: Cell,
        partial: Path,
        conditions: Conditions,
        cpus: Sequence[int] | None = None,
        metronome: Metronome | None = None,
    ) -> tuple[Run, tuple[Phase, ...]]:
        """Measure ``cell`` in ``partial``, a folder of `run_folder`; errors are as in `record`."""
        base = base_of(cell, self.sitting, self.recipes.get(cell.volume_id))
        app, image = self._app_and_image(cell)
        run, phases = measure_app(
            app, image, partial, cell, conditions,
            base=base, cpus=cpus, metronome=metronome, stopped=self.stopped,
        )  # fmt: skip
        no_space = os.strerror(errno.ENOSPC)
        if run.outcome != "completed" and (
            no_space in log_tail(partial) or shutil.disk_usage(partial).free < FULL_BYTES
        ):
            raise _full_disk(self.folder)  # the disk failed, not the application
        return run, phases

    def write_record(
        self, cell: Cell, run: Run, phases: Sequence[Phase], partial: Path, final: Path
    ) -> None:
        """Complete the record in ``partial``, which the caller then syncs and renames."""
        app, image = self._app_and_image(cell)
        configuration, out = cell.configuration, final / "out"
        limit_bytes = memory_limit(configuration.mem_limit_bytes, self.conditions)
        _drop_volumes(partial / "out")
        record = {
            "run": as_fields(run),
            "cell": as_fields(cell),
            "phases": [as_fields(phase) for phase in phases],
            "command": command(
                app, image, out, configuration, cell.parameters, memory_bytes=limit_bytes
            ),
            "container": container_facts(app, configuration),
            "recipe": self.recipes.get(cell.volume_id),
            "host": self.sitting.host,
            "versions": software_versions(),
        }
        (partial / RECORD_FILE).write_text(json_text(record), encoding="utf-8")

    def warm_up(self, cell: Cell) -> None:
        """Run ``cell`` unrecorded, so that its files are in memory for recorded runs."""
        app, image = self._app_and_image(cell)
        with self.run_folder(self._partial("warm-up")) as partial:
            measure_app(app, image, partial, cell, self.conditions)

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


def measure_app(
    app: App,
    image: Path | None,
    folder: Path,
    cell: Cell,
    conditions: Conditions,
    *,
    base: Run | None = None,
    cpus: Sequence[int] | None = None,
    propose_phases: PhasePatterns | None = None,
    metronome: Metronome | None = None,
    stopped: Callable[[], bool] | None = None,
) -> tuple[Run, tuple[Phase, ...]]:
    """Run ``app`` as ``cell`` describes; results go to the folder ``out`` of ``folder``.

    `propose_phases` returns patterns of phases for the lines of the log, for an application
    without any. The other arguments are as in `voxcast.measure.runner.measure`.
    """
    configuration, out = cell.configuration, folder / "out"
    limit_bytes = memory_limit(configuration.mem_limit_bytes, conditions)
    with staged(app, image, out, configuration):
        return measure(
            command(app, image, out, configuration, cell.parameters, memory_bytes=limit_bytes),
            environment(configuration),
            folder,
            base=base or base_of(cell),
            conditions=conditions,
            cpus=cpus,
            phase_patterns=app.phase_patterns or propose_phases,
            verify_gpu=app.verify_gpu,
            metronome=metronome,
            stopped=stopped,
        )


def figures(run: Run, phases: Sequence[Phase]) -> dict[str, Any]:
    """Return the measured fields of a run, with its phases, as the command line shows them."""
    values = {name: value for name, value in vars(run).items() if name not in KNOWN_BEFORE}
    values["time_limit_s"] = values.pop("limit_s")
    return {**values, "phases": [dataclasses.asdict(phase) for phase in phases]}


def log_tail(folder: Path) -> str:
    """Return the end of a run's log."""
    return text_tail(folder / LOG_FILE)


def last_line(folder: Path) -> str:
    """Return the last line of a run's log, without control characters; empty if it has none."""
    lines = log_tail(folder).strip().splitlines() if (folder / LOG_FILE).is_file() else []
    return "".join(filter(str.isprintable, lines[-1]))[:MAX_LINE] if lines else ""


def cause(outcome: str, folder: Path) -> str:
    """Return how a run ended, with the last line of its log."""
    line = last_line(folder)
    return f"{outcome} ({line})" if line else outcome


class Failures:
    """Counts the images on which an application failed before any run of its version completed.

    Parameters
    ----------
    runs : iterable of Run
        The runs on record.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._able = {(r.app, r.app_version) for r in runs if r.outcome == "completed"}
        self._images: dict[tuple[str, str], set[str]] = defaultdict(set)

    def count(self, cell: Cell, outcome: str, run: Path) -> None:
        """Count the run of ``cell`` in the folder ``run``.

        Raises
        ------
        RunError
            If its application failed on `MAX_IMAGES` images, and no run of it has completed.
        """
        version = cell.app, cell.app_version
        if outcome == "completed":
            self._able.add(version)
        elif outcome == "failed":  # each run of an application without an input counts
            self._images[version].add(cell.volume_id or cell.key)
            if version not in self._able and len(self._images[version]) >= MAX_IMAGES:
                problem = f"{cell.app} failed on {MAX_IMAGES} images and never completed"
                then = "mend it and run the same command again: failed runs are tried again"
                raise RunError(problem, run, then)


@dataclass(frozen=True)
class AppTrial:
    """The result of a trial.

    Attributes
    ----------
    log : str
        End of its output.
    files : tuple of str
        Files that it wrote, relative to its folder of results.
    proposal : dict
        Patterns of phases that its output shows, if the application names none itself.
    expected_s : dict
        A first guess of times by size: half of one run depends on the image, half does not.
    """

    run: Run
    phases: tuple[Phase, ...]
    log: str
    files: tuple[str, ...]
    proposal: dict[str, str]
    expected_s: dict[str, float]


def try_app(app: App, image: Path, configuration: Configuration, time_limit_s: float) -> AppTrial:
    """Run ``app`` on ``image`` under the profiler, in a folder that is removed afterwards."""
    mvoxels = math.prod(Volume.open(image).header.shape) / 1e6
    with temporary_folder() as name:
        folder = Path(name)
        (folder / "out").mkdir()
        cell = Cell(app.name, "", app.parameters, "", "", configuration, "full_scale", 0, "")
        proposal: dict[str, str] = {}

        def proposed(lines: Sequence[str]) -> dict[str, str]:
            proposal.update(propose_phases(lines[:MAX_LOG_LINES]))
            return proposal

        run, phases = measure_app(
            app, image.absolute(), folder, cell, Conditions(time_limit_s), propose_phases=proposed
        )
        written = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
        half_s = max(run.runtime_s or 0.0, 0.02) / 2
        return AppTrial(
            run=run,
            phases=phases,
            log=log_tail(folder),
            files=tuple(path.relative_to(folder / "out").as_posix() for path in written),
            proposal=proposal,
            expected_s={
                "expected_startup_s": float(f"{half_s:.2g}"),
                "expected_s_per_mvoxel": float(f"{half_s / mvoxels:.2g}"),
            },
        )


def _drop_volumes(out: Path) -> None:
    """Remove all but small results, and traces of communication in their folder."""
    for path in out.rglob("*"):
        if path.is_relative_to(out / TRACES_FOLDER) or not path.is_file():
            continue
        if path.suffix not in KEPT_SUFFIXES or path.stat().st_size >= KEPT_BYTES:
            try:
                path.unlink()
            except PermissionError:  # in a folder that the application made read-only
                path.parent.chmod(0o700)
                path.unlink()


def _full_disk(folder: Path) -> RunError:
    then = "free some space and run the same command again; no finished run is lost"
    return RunError("no space left on the device", folder, then)
