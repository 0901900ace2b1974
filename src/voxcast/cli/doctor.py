"""``voxcast doctor``: what works on this machine and in this project, and what that means.

``--clean`` removes what killed processes left behind: processes, control groups and temporary
folders of runs, and unfinished files of the project that nothing has written to for an hour.
Measurements, results, cached fits and registered models stay.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from voxcast import project as projects
from voxcast.apps.containers import ENGINES
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, EXTRAS, VoxcastError, one_line
from voxcast.measure.local import project_leftovers
from voxcast.measure.processes import abandoned, remove
from voxcast.quantities import format_bytes

Status = Literal["works", "limited", "absent", "broken"]
FULL_BYTES = 10**9
SLURM = ("sbatch", "squeue", "sacct")
MEANS_BY_EXTRA = {
    "apps": "the built-in applications cannot be run",
    "train": "nothing can be learned",
    "serve": "a champion cannot be loaded here; `--model URL` uses a server",
}

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of ``voxcast doctor``.

    Attributes
    ----------
    status : str
        ``works``; ``limited``, with a worse method; ``absent``, not here and not needed; or
        ``broken``: the project cannot be used until it is mended.
    meaning : str
        The consequence for measurements and predictions.
    """

    name: str
    status: Status
    fact: str
    meaning: str = ""


def doctor(
    clean: Annotated[
        bool, Option("--clean", help="Remove what killed processes left behind.")
    ] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show what works on this machine and in this project, and what that means.

    Each line is `works`; `limited`, if a worse method is used; `absent`, if something optional is
    not here; or `broken`, and then the exit code is 2. Measurements, results and models are never
    removed by --clean.
    """
    folder = projects.find(project)
    if clean:
        return _remove_leftovers(folder, as_json=as_json)
    checks = [*_of_machine(), *_of_project(folder)]
    lines = []
    for check in checks:
        lines.append(f"{check.status:8} {check.name:17} {check.fact}")
        if check.meaning and check.status != "works":
            lines.append(f"{'':26} {check.meaning}")
    options.show([dataclasses.asdict(check) for check in checks], lines, as_json=as_json)
    return EXIT_BAD_INPUT if any(check.status == "broken" for check in checks) else 0


def _of_machine() -> Iterator[Check]:
    yield Check("Python", "works", platform.python_version())
    for extra, meaning in MEANS_BY_EXTRA.items():
        missing = [n for n, group in EXTRAS.items() if group == extra and find_spec(n) is None]
        fact = f"missing: {', '.join(missing)}" if missing else "installed"
        then = f"{meaning}; pip install 'voxcast[{extra}]'"
        yield Check(f"packages: {extra}", "absent" if missing else "works", fact, then)
    usable, present, load1 = len(os.sched_getaffinity(0)), os.cpu_count() or 0, os.getloadavg()[0]
    is_free = usable == present and load1 < 0.25 * usable
    yield Check(
        "cores", "works" if is_free else "limited",
        f"{usable} of {present} may be used, load {load1:.1f}",
        "runs made now may be disturbed; they are marked noisy" if usable == present
        else "a batch system or taskset allows no more; runs use at most these",
    )  # fmt: skip
    yield _memory()
    yield _gpu()
    yield _disk("temporary folder", Path(tempfile.gettempdir()), "set another by TMPDIR")
    slurm = [name for name in SLURM if shutil.which(name)]
    yield Check(
        "Slurm", "works" if len(slurm) == len(SLURM) else "limited" if slurm else "absent",
        ", ".join(slurm) or "no sbatch, squeue or sacct",
        "requests are printed; exports of `sacct` from elsewhere can be imported",
    )  # fmt: skip
    engines = [name for name, called in ENGINES.items() if shutil.which(called.program)]
    yield Check(
        "containers", "works" if engines else "absent", ", ".join(engines) or "no engine",
        "applications in containers cannot be run here",
    )  # fmt: skip
    count = len(abandoned())
    yield Check(
        "leftovers", "limited" if count else "works", f"{count or 'none'} of killed runs",
        "they take CPU, memory or disk: `voxcast doctor --clean` removes them",
    )  # fmt: skip


def _memory() -> Check:
    from voxcast.measure.meters import open_meter, planned_group
    from voxcast.measure.processes import new_run_id

    run_id = new_run_id()
    meter = open_meter(run_id, planned_group(run_id))
    method = meter.memory_method
    meter.close()
    if method.startswith("cgroup"):
        version = method.removeprefix("cgroup")
        return Check("memory of a run", "works", f"control group, version {version}")
    return Check(
        "memory of a run", "limited", f"sampled from its processes ({method})",
        "peaks between two samples are missed; with version 2 of control groups use "
        "`systemd-run --user --scope -p Delegate=yes voxcast …`",
    )  # fmt: skip


def _gpu() -> Check:
    from voxcast.measure.gpu import gpu_models, open_gpu_meter

    models, meter = ", ".join(gpu_models()), open_gpu_meter()
    if meter is not None:
        meter.close()
        return Check("GPU", "works", models or "NVML answers")
    if models:
        then = "its memory and utilisation are not measured: pip install 'voxcast[apps]'"
        return Check("GPU", "limited", f"{models}, but NVML does not answer", then)
    return Check("GPU", "absent", "no NVIDIA driver", "only runs on CPUs can be measured")


def _disk(name: str, folder: Path, without: str) -> Check:
    if not os.access(folder, os.W_OK):
        return Check(name, "limited", f"{folder} may not be written", without)
    free = shutil.disk_usage(folder).free
    fact = f"{folder}, {format_bytes(free)} free"
    return Check(name, "works" if free > FULL_BYTES else "limited", fact, "a full disk ends runs")


def _of_project(project: Path | None) -> Iterator[Check]:
    if project is None:
        then = "the reference model of the package answers; `voxcast init` makes a project"
        yield Check("project", "absent", "none here or above", then)
        return
    from voxcast import config

    try:
        apps = ", ".join(config.load(project / config.PARAMS_FILE).apps)
        yield Check("project", "works", f"{project}, configured: {apps}")
    except VoxcastError as error:
        yield Check("project", "broken", one_line(error), "no verb that needs it works")
    yield _disk("disk", project, "predictions work; measuring and learning do not")
    yield _models(project)
    for program, folder, means in (
        ("git", ".git", "results are not under version control"),
        ("dvc", ".dvc", "`voxcast learn` and `dvc repro` do not work"),
    ):
        is_set_up = any((above / folder).exists() for above in (project, *project.parents))
        path = shutil.which(program)
        yield Check(
            program, "absent" if path is None else "works" if is_set_up else "limited",
            path or "not on the path" if is_set_up else f"no {folder} in the project", means,
        )  # fmt: skip


def _models(project: Path) -> Check:
    from voxcast.serving.model_store import ModelStore
    from voxcast.tracking.address import tracking_uri, without_password

    store = ModelStore.of(project)
    try:
        pointer, uri = store.pointer(), without_password(tracking_uri(project))
        if pointer.champion is None:
            then = "nothing can be predicted yet; `voxcast learn` trains a model"
            return Check("models", "absent", "no version yet", then)
        problems = [f"; {name}: {problem}" for name, problem in store.open().problems().items()]
    except VoxcastError as error:
        return Check("models", "broken", one_line(error), "nothing can be predicted or learned")
    numbers = ", ".join(sorted(pointer.versions, key=int))
    apps = ", ".join(pointer.versions[pointer.champion].apps)
    fact = f"versions: {numbers}; champion: {pointer.champion}, of {apps}; MLflow: {uri}"
    then = "see `voxcast models show`"
    return Check("models", "limited" if problems else "works", fact + "".join(problems[:1]), then)


def _remove_leftovers(folder: Path | None, *, as_json: bool) -> int:
    """Remove leftovers; any that cannot be removed is named and ends in exit code 2."""
    rows, lines = [], []
    for leftover in [*abandoned(), *([] if folder is None else project_leftovers(folder))]:
        removed = True
        try:
            remove(leftover)
        except VoxcastError as error:  # the rest is still removed
            logger.error("%s", one_line(error))
            removed = False
        rows.append(dataclasses.asdict(leftover) | {"removed": removed})
        size = f" ({format_bytes(leftover.size_bytes)})" if leftover.size_bytes else ""
        lines.append(f"{'removed' if removed else 'left'} {leftover}{size}")
    options.show(rows, lines or ["nothing to remove"], as_json=as_json)
    return 0 if all(row["removed"] for row in rows) else EXIT_BAD_INPUT
