"""``voxcast doctor``: what works on this machine and in this project, and what that means.

``--clean`` removes what killed processes left behind: processes, control groups and temporary
folders of runs, and unfinished files of the project that nothing has written to for an hour.
Measurements, results, cached fits and registered models stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from voxcast import project as projects
from voxcast.apps.containers import ENGINES
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, VoxcastError, one_line
from voxcast.files import PARTIAL
from voxcast.measure.processes import Kind, Leftover, abandoned, remove, size_bytes
from voxcast.quantities import format_bytes

Status = Literal["works", "limited", "absent", "broken"]
ANSWER_S = 5.0  # patience with another program
FULL_BYTES = 10**9
QUIET_S = 3600.0  # a file that is being written is touched more often
SKIPPED = {".git", ".venv", "mlruns", "node_modules"}
CONSTRAINTS = "constraints.txt"
MAX_NAMED = 4
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
    checks = []
    for check in _checks(folder):
        checks.append(check)
        if not as_json:
            print(f"{check.status:8} {check.name:17} {check.fact}")
            if check.meaning and check.status != "works":
                print(f"{'':26} {check.meaning}")
    if as_json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    return EXIT_BAD_INPUT if any(check.status == "broken" for check in checks) else 0


def _checks(project: Path | None) -> Iterator[Check]:
    yield from _packages()
    if project is not None and (project / CONSTRAINTS).is_file():
        yield _versions(project / CONSTRAINTS)
    yield _cores()
    yield _memory()
    yield _gpu()
    yield _disk("temporary folder", Path(tempfile.gettempdir()), "set another by TMPDIR")
    yield _slurm()
    yield from _engines()
    yield _leftovers()
    if project is None:
        then = "predictions need a project or `--model URL`: `voxcast init` writes one"
        yield Check("project", "absent", "none here or above", then)
        return
    yield _configuration(project)
    yield _disk("disk", project, "predictions work; measuring and learning do not")
    yield _models(project)
    for name, program, folder, means in (
        ("git", "git", ".git", "results are not under version control"),
        ("DVC", "dvc", ".dvc", "`voxcast learn` and `dvc repro` do not work"),
    ):
        path = shutil.which(program)
        if path is None:
            yield Check(name, "absent", f"{program} is not on the path", means)
        elif not any((above / folder).exists() for above in (project, *project.parents)):
            yield Check(name, "limited", f"no {folder} in the project or above", means)
        else:
            yield Check(name, "works", path)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    yield Check("Python", "works", platform.python_version())
    missing: dict[str, list[str]] = {"": [], **{extra: [] for extra in MEANS_BY_EXTRA}}
    for line in importlib.metadata.requires("voxcast") or ():
        requirement, _, condition = line.partition(";")
        match = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        name = re.split(r"[^\w.-]", requirement.strip())[0]
        extra = match[1] if match else ""
        if name != "voxcast" and extra in missing and _version(name) is None:
            missing[extra].append(name)
    for extra, names in missing.items():
        title = f"packages: {extra}" if extra else "packages"
        fact = f"missing: {', '.join(names)}"
        if not names:
            yield Check(title, "works", "installed")
        elif extra:
            then = f"{MEANS_BY_EXTRA[extra]}; pip install 'voxcast[{extra}]'"
            yield Check(title, "absent", fact, then)
        else:
            yield Check(title, "broken", fact, "install voxcast again")


def _versions(constraints: Path) -> Check:
    others = []
    for line in constraints.read_text(encoding="utf-8").splitlines():
        name, _, tested = line.partition("#")[0].strip().partition("==")
        version = _version(name) if tested else None
        if version and version.partition("+")[0] != tested.partition("+")[0]:
            others.append(f"{name} {version} (tested: {tested})")
    if not others:
        return Check("versions", "works", f"as in {CONSTRAINTS}")
    more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
    then = f"`pip install -c {CONSTRAINTS}` installs the tested versions"
    return Check("versions", "limited", f"{', '.join(others[:MAX_NAMED])}{more}", then)


def _cores() -> Check:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 0
    load1 = os.getloadavg()[0]
    fact = f"{usable} of {present} may be used, load {load1:.1f}"
    if usable < present:
        then = "a batch system or taskset allows no more; runs use at most these"
        return Check("cores", "limited", fact, then)
    if load1 >= 0.25 * usable:
        then = "runs made now may be disturbed; they are marked noisy"
        return Check("cores", "limited", fact, then)
    return Check("cores", "works", fact)


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
    then = (
        "peaks between two samples are missed; with version 2 of control groups use "
        "`systemd-run --user --scope -p Delegate=yes voxcast …`"
    )
    return Check("memory of a run", "limited", f"sampled from its processes ({method})", then)


def _gpu() -> Check:
    from voxcast.measure.gpu import gpu_models, open_gpu_meter

    models = gpu_models()
    meter = open_gpu_meter()
    if meter is not None:
        meter.close()
        return Check("GPU", "works", ", ".join(models) or "NVML answers")
    if models:
        then = "its memory and utilisation are not measured: pip install 'voxcast[apps]'"
        return Check("GPU", "limited", f"{', '.join(models)}, but NVML does not answer", then)
    return Check("GPU", "absent", "no NVIDIA driver", "only runs on CPUs can be measured")


def _disk(name: str, folder: Path, without: str) -> Check:
    if not os.access(folder, os.W_OK):
        return Check(name, "limited", f"{folder} may not be written", without)
    free = shutil.disk_usage(folder).free
    status: Status = "works" if free > FULL_BYTES else "limited"
    return Check(name, status, f"{folder}, {format_bytes(free)} free", "a full disk ends runs")


def _slurm() -> Check:
    present = [name for name in ("sbatch", "squeue", "sacct") if shutil.which(name)]
    if not present:
        then = "requests are printed; exports of `sacct` from elsewhere can be imported"
        return Check("Slurm", "absent", "no sbatch, squeue or sacct", then)
    answer = _answer([present[0], "--version"])
    fact = f"{answer or 'its commands do not answer'} ({', '.join(present)})"
    status: Status = "works" if answer and len(present) == 3 else "limited"
    return Check("Slurm", status, fact, "requests are printed and can be given to sbatch")


def _engines() -> Iterator[Check]:
    missing = []
    for engine, called in ENGINES.items():
        if shutil.which(called.program) is None:
            missing.append(engine)
            continue
        answer = _answer([called.program, "--version"])
        status: Status = "works" if answer else "limited"
        yield Check(engine, status, answer or f"{called.program} does not answer")
    if missing:
        then = "applications in such containers cannot be run here"
        yield Check("other engines", "absent", ", ".join(missing), then)


def _answer(command: list[str]) -> str | None:
    """Return the first line that a program prints, or None if it fails or is too slow."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        completed = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=ANSWER_S, errors="replace"
        )
        return (completed.stdout.strip() or completed.stderr.strip()).partition("\n")[0]
    return None


def _leftovers() -> Check:
    count = len(abandoned())
    if not count:
        return Check("leftovers", "works", "none of killed runs")
    then = "they take CPU, memory or disk: `voxcast doctor --clean` removes them"
    return Check("leftovers", "limited", f"{count} of killed runs", then)


def _configuration(project: Path) -> Check:
    from voxcast import config

    try:
        params = config.load(project / config.PARAMS_FILE)
    except VoxcastError as error:
        return Check("project", "broken", one_line(error), "no verb that needs it works")
    return Check("project", "works", f"{project}, configured: {', '.join(params.apps)}")


def _models(project: Path) -> Check:
    from voxcast.serving.model_store import ModelStore
    from voxcast.tracking.address import tracking_uri, without_password

    store = ModelStore.of(project)
    try:
        pointer, uri = store.pointer(), without_password(tracking_uri(project))
        if pointer.champion is None:
            then = "nothing can be predicted yet; `voxcast learn` trains a model"
            return Check("models", "absent", "no version yet", then)
        problems = store.open().problems()
    except VoxcastError as error:
        return Check("models", "broken", one_line(error), "nothing can be predicted or learned")
    numbers = ", ".join(sorted(pointer.versions, key=int))
    apps = ", ".join(pointer.versions[pointer.champion].apps)
    fact = f"versions: {numbers}; champion: {pointer.champion}, of {apps}; MLflow: {uri}"
    for name, problem in problems.items():
        then = "see `voxcast models show`"
        return Check("models", "limited", f"{fact}; {name}: {problem}", then)
    return Check("models", "works", fact)


def _remove_leftovers(folder: Path | None, *, as_json: bool) -> int:
    """Remove leftovers; any that cannot be removed is named and ends in exit code 2."""
    rows = []
    for leftover in [*abandoned(), *([] if folder is None else project_leftovers(folder))]:
        try:
            remove(leftover)
            removed = True
        except VoxcastError as error:  # the rest is still removed
            logger.error("%s", one_line(error))
            removed = False
        rows.append(dataclasses.asdict(leftover) | {"removed": removed})
        if not as_json:
            size = f" ({format_bytes(leftover.size_bytes)})" if leftover.size_bytes else ""
            print(f"{'removed' if removed else 'left'} {leftover}{size}")
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("nothing to remove")
    return 0 if all(row["removed"] for row in rows) else EXIT_BAD_INPUT


def project_leftovers(folder: Path, now_s: float | None = None) -> Iterator[Leftover]:
    """Yield unfinished files and folders of a project.

    Parameters
    ----------
    now_s : float, optional
        Seconds since 1970, from which `QUIET_S` is counted back; the present by default.
    """
    from voxcast.measure.local import is_locked
    from voxcast.measure.processes import was_abandoned

    quiet_since_s = (time.time() if now_s is None else now_s) - QUIET_S
    for parent, folders, files in os.walk(folder):
        unfinished = sorted(n for n in (*folders, *files) if n.startswith(PARTIAL))
        folders[:] = [name for name in folders if name not in {*unfinished, *SKIPPED}]
        for path in (Path(parent, name) for name in unfinished):
            is_quiet = _changed_s(path) < quiet_since_s and not is_locked(path.parent)
            if is_quiet or was_abandoned(path):
                kind: Kind = "folder" if path.is_dir() else "file"
                yield Leftover(kind, str(path), size_bytes=size_bytes(path))


def _changed_s(path: Path) -> float:
    """Return when a file, or anything in a folder, was changed last, in seconds since 1970."""
    times = [path.lstat().st_mtime]
    for parent, folders, files in os.walk(path):
        times += [Path(parent, name).lstat().st_mtime for name in (*folders, *files)]
    return max(times)
