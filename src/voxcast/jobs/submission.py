"""A submission: its plan, and its folder of scripts, logs and an append-only record of events.

A plan is complete, and a JSON file with a version: a login node without a project, a model or
Hydra can submit it. The tasks of a plan are jobs, or cells that workers draw, see `Draw`; then the
jobs are those workers.

Any process can continue from the folder, which is private to the user::

    submission.json     plan without its tasks, folder of outputs, executor
    tasks.jsonl         one task a line
    events.jsonl        one line for each array prepared and submitted, and each attempt ended
    arrays/0001.sbatch  script of an array, beside its list of tasks, 0001.tasks
    logs/0001-3.log     output of its third task
    work/0001-3         where that task works; its results move to OUT/NAME when it has completed
    draw, runs          cells that workers draw, and their runs, see `voxcast.jobs.worker`
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.apps.app import app_version
from voxcast.errors import ConfigError, VoxcastError
from voxcast.files import atomic_folder, is_empty, json_text, sync, text_tail, write_text
from voxcast.jobs.claim import CLAIM_FILE, CLOCK_FILE
from voxcast.jobs.task import Limits, Task
from voxcast.measure.trace import Conditions
from voxcast.records import App, Configuration, Prediction, as_fields, of_fields

if TYPE_CHECKING:
    from voxcast.allocation.site import Cluster

logger = logging.getLogger(__name__)

SUBMISSIONS = ".voxcast"  # in the folder of outputs
SUBMISSION_FILE, TASKS_FILE, EVENTS_FILE = "submission.json", "tasks.jsonl", "events.jsonl"
OUT_NAME = "out"  # of the folder of results, in the folder of an attempt
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
PLAN_VERSION = 4
VERSION_KEY = "voxcast_plan"
# Options of sbatch that voxcast decides, and a plan must not repeat.
_DECIDED = (
    "array", "chdir", "cpus-per-task", "dependency", "error", "gres", "job-name", "mem",
    "mem-per-cpu", "nodes", "no-requeue", "ntasks", "output", "parsable", "partition", "requeue",
    "time", "wrap",
)  # fmt: skip
_OPTION = re.compile(r"[a-z][a-z0-9-]*(=[^\x00-\x1f\x7f]+)?")


@dataclass(frozen=True)
class SlurmOptions:
    """Options of ``sbatch`` that no prediction decides.

    Attributes
    ----------
    further : tuple of str
        As ``KEY=VALUE`` or ``KEY``, such as ``account=mri``.
    throttle : int or None
        Tasks of an array that may run at a time, ``%N``.
    memory_per_cpu : tuple of str
        Partitions that take ``--mem-per-cpu`` only.
    """

    further: tuple[str, ...] = ()
    throttle: int | None = None
    memory_per_cpu: tuple[str, ...] = ()

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        throttle: int | None = None,
        memory_per_cpu: tuple[str, ...] = (),
    ) -> SlurmOptions:
        """Return the options that a user gives as ``KEY=VALUE``; errors as `sbatch_option`."""
        return cls(tuple(map(sbatch_option, texts)), throttle, memory_per_cpu)

    def options(self) -> list[str]:
        """Return the options of ``sbatch``."""
        return [f"--{option}" for option in self.further]


def partitions_per_cpu(cluster: Cluster) -> tuple[str, ...]:
    """Return the partitions of a cluster that take ``--mem-per-cpu`` only."""
    return tuple(p.name for p in cluster.partitions if p.memory_per_cpu)


def sbatch_option(text: str) -> str:
    """Return an option of ``sbatch`` that a user gives as ``KEY=VALUE``.

    Raises
    ------
    ConfigError
        If it is malformed, or voxcast decides it.
    """
    option = text.removeprefix("--")
    if not _OPTION.fullmatch(option):
        raise ConfigError(f"not KEY=VALUE: {text!r}", "--sbatch", "e.g. --sbatch reservation=mri")
    if option.partition("=")[0] in _DECIDED:
        raise ConfigError(f"voxcast decides {option.partition('=')[0]}", "--sbatch")
    return option


@dataclass(frozen=True)
class Draw:
    """What workers need to run cells that they draw.

    Attributes
    ----------
    apps : dict of str to App
        Applications of the cells by name.
    paths : dict of str to str
        File of each volume by volume id.
    project : str
        Folder that relative paths begin at.
    recipes : dict
        Recipes of generated volumes by volume id.
    conditions : Conditions
        How each run is measured. A run that reaches their time limit is on record as such.
    mapped_files_bytes : dict
        By application: what counts against a worker's job beyond the memory of a run, see
        `voxcast.allocation.site`; nothing for applications that it leaves out.
    """

    apps: dict[str, App]
    paths: dict[str, str]
    project: str
    recipes: dict[str, Any] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    mapped_files_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Tasks of one application, or of workers that draw them.

    Attributes
    ----------
    app : App
        What jobs run.
    container_engine : str
        ``none``, or one of `voxcast.apps.containers.ENGINES`.
    limits : Limits
        Where attempts of any task end; a task may have narrower ones.
    added_memory_bytes : int
        That the site counts beyond the memory which is predicted, such as mapped files.
    draw : Draw or None
        Where workers draw the tasks, of which each then has a cell.
    """

    app: App
    tasks: tuple[Task, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    container_engine: str = "none"
    cluster: str = ""
    limits: Limits = field(default_factory=Limits)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    added_memory_bytes: int = 0
    draw: Draw | None = None

    @classmethod
    def from_record(cls, fields: Mapping[str, Any], where: Path) -> Plan:
        """Return the plan with the fields that `to_record` gave.

        Raises
        ------
        ConfigError
            If it is of another version, or is not a plan.
        """
        with _readable(fields, where):
            if (version := fields.get(VERSION_KEY)) != PLAN_VERSION:
                raise ValueError(f"version {version}, not {PLAN_VERSION}")
            values = {name: fields[name] for name in cls.__dataclass_fields__ if name in fields}
            return of_fields(cls, values)

    def to_record(self) -> dict[str, Any]:
        """Return the plan as an object that `json` can write; null stands for no limit."""
        versions = {VERSION_KEY: PLAN_VERSION, "voxcast_version": voxcast.__version__}
        return versions | as_fields(self)


@contextlib.contextmanager
def _readable(fields: Mapping[str, Any], where: Path) -> Iterator[None]:
    """Refuse what cannot be read in the block, and name the release that wrote it."""
    try:
        yield
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        made_by = fields.get("voxcast_version", "unknown")
        problem = f"a plan that cannot be read ({error}), made by voxcast {made_by}"
        then = f"use that release, or make it again; this is voxcast {voxcast.__version__}"
        raise ConfigError(problem, where, then) from None


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises
    ------
    ConfigError
        If it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError((error.strerror or "cannot be read").lower(), path) from None
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}", path) from None
    if not isinstance(content, dict):
        raise ConfigError("not a JSON object", path)
    return content


@dataclass(frozen=True)
class ArrayFiles:
    """Where an array job finds and leaves its files.

    Attributes
    ----------
    task_list : Path
        File of the functions of its tasks.
    work : Path
        Task N works in the folder ``work-N``.
    log : str
        Pattern of ``--output``, in which ``%a`` is the number of a task.
    """

    task_list: Path
    work: Path
    log: str

    def attempt_folder(self, number: int) -> Path:
        """Return the folder of the attempt of a task, numbered from 1."""
        return self.work.with_name(f"{self.work.name}-{number}")


@dataclass(frozen=True)
class Submission:
    """A plan that was submitted, or is about to be.

    Attributes
    ----------
    label : str
        Names its jobs; different for each submission.
    app_versions : dict of str to str
        Version of the application with its packages and container by device, as it was when this
        was submitted; see `voxcast.apps.app.app_version`.
    """

    folder: Path
    plan: Plan
    out: Path
    executor: str
    label: str
    app_versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def create(
        cls, plan: Plan, out: Path, executor: str, folder: Path | None = None
    ) -> Submission:
        """Make the folder; by default below ``out``.

        Raises
        ------
        ConfigError
            If it is not empty, or an output is there already.
        """
        out = Path(os.path.abspath(out))  # noqa: PTH100  # links stay as the user wrote them
        check_outputs(plan, out)
        label = secrets.token_hex(4)
        now = datetime.datetime.now().astimezone()
        folder = folder or out / SUBMISSIONS / f"{plan.app.name}-{now:%Y%m%d-%H%M%S}-{label}"
        folder = Path(os.path.abspath(folder))  # noqa: PTH100
        if _CONTROL.search(f"{folder}{out}"):
            raise ConfigError("has a line break or control character in its name", repr(str(out)))
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            others = {path.name for path in folder.iterdir()} - {CLAIM_FILE, CLOCK_FILE}
        except PermissionError:
            then = "choose another --out"
            raise ConfigError("belongs to another user", folder.parent, then) from None
        except FileNotFoundError:  # a file system that takes no new folders
            raise ConfigError("cannot be made", folder.parent, "name another folder") from None
        if others:
            raise ConfigError("is not an empty folder", folder, "move it away, or name another")
        out.mkdir(parents=True, exist_ok=True)  # last, as it may be in that folder
        submission = cls(folder, plan, out, executor, label, _app_versions(plan))
        try:
            folder.chmod(0o700)
            for name in ("arrays", "logs", "work"):
                (folder / name).mkdir()
            submission.save()
        except OSError:  # as of a full disk: half a submission would be in the way of the next
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return submission

    @classmethod
    def of_workers(cls, folder: Path, plan: Plan) -> Submission:
        """Make a submission of workers, or bring the plan of one up to date; its tasks stay.

        Raises
        ------
        ConfigError
            If the folder holds something else.
        """
        if not (folder / SUBMISSION_FILE).is_file():
            return cls.create(plan, folder / "runs", "slurm", folder)
        submission = cls.open(folder)
        names = {task.name for task in submission.plan.tasks}
        new = [task for task in plan.tasks if task.name not in names]
        plan = replace(plan, tasks=(*submission.plan.tasks, *new))
        submission = replace(submission, plan=plan)
        submission.save()
        return submission

    def save(self) -> None:
        """Write the record; tasks first, as only those of a record that is there are read."""
        content = self.plan.to_record() | {
            "out": str(self.out), "executor": self.executor, "label": self.label,
            "app_versions": self.app_versions,
        }  # fmt: skip
        tasks = "".join(f"{json.dumps(task)}\n" for task in content.pop("tasks"))
        write_text(self.folder / TASKS_FILE, tasks)
        write_text(self.folder / SUBMISSION_FILE, json_text(content))

    @classmethod
    def open(cls, folder: Path, *, with_tasks: bool = True) -> Submission:
        """Open the folder of a submission, or the newest one of a folder of outputs.

        Parameters
        ----------
        with_tasks : bool, optional
            False leaves the tasks out, which a worker draws one by one.

        Raises
        ------
        ConfigError
            If the folder has none.
        """
        homes, private = [folder], folder / SUBMISSIONS
        if not (folder / SUBMISSION_FILE).is_file():
            if private.is_dir() and not os.access(private, os.R_OK | os.X_OK):
                then = "name the folder of your submission"
                raise ConfigError("belongs to another user", private, then)
            files = private.glob(f"*/{SUBMISSION_FILE}")
            homes = [path.parent for path in sorted(files, key=lambda p: p.stat().st_mtime_ns)]
        if not homes:
            raise ConfigError("no submission here", folder, "name the folder of one")
        home = homes[-1]
        if len(homes) > 1:
            older = ", ".join(str(path) for path in homes[:-1])
            logger.info("%s: the newest of %d submissions; name %s", home, len(homes), older)
        path = home / SUBMISSION_FILE
        content = read_json_object(path)
        with _readable(content, path):
            if "tasks" not in content:
                tasks = (home / TASKS_FILE).read_text(encoding="utf-8") if with_tasks else ""
                content["tasks"] = [json.loads(line) for line in tasks.splitlines()]
            plan = Plan.from_record(content, path)
            home = Path(os.path.abspath(home))  # noqa: PTH100
            return cls(
                home, plan, Path(content["out"]), content["executor"], content["label"],
                dict(content.get("app_versions", {})),
            )  # fmt: skip

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happened so far; a last line that was cut off is left out."""
        path = self.folder / EVENTS_FILE
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):  # its writer was killed, or the disk was full
                yield json.loads(line)

    def record(self, event: dict[str, Any]) -> None:
        """Append an event, on disk when this returns.

        It begins a line, so that none is appended to one that was cut off.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = json.dumps({**event, "at": now}, allow_nan=False)
        with (self.folder / EVENTS_FILE).open("a", encoding="utf-8") as stream:
            stream.write(f"\n{line}" if stream.tell() else line)
            stream.flush()
            os.fsync(stream.fileno())

    def predicted(self, task: Task) -> Prediction | None:
        """Return the prediction of a task, with memory as the site counts it.

        It can be shown beside the memory that Slurm's accounting states. None for a request by
        hand.
        """
        if task.prediction is None or self.executor != "slurm":
            return task.prediction
        added, resident = self.plan.added_memory_bytes, task.prediction
        return replace(
            resident,
            peak_rss_bytes=resident.peak_rss_bytes + added,
            peak_rss_bytes_upper=resident.peak_rss_bytes_upper + added,
        )

    def job_name(self, array: int) -> str:
        """Return the name of the job of an array."""
        return f"{self.plan.app.name}-{self.label}-{array:04}"

    def script(self, array: int) -> Path:
        """Return the path of the script of an array."""
        return self.folder / "arrays" / f"{array:04}.sbatch"

    def files(self, array: int) -> ArrayFiles:
        """Return where an array finds and leaves its files."""
        name = f"{array:04}"
        log = str(self.folder / "logs").replace("%", "%%")
        return ArrayFiles(
            self.folder / "arrays" / f"{name}.tasks", self.folder / "work" / name,
            f"{log}/{name}-%a.log",
        )  # fmt: skip

    def log(self, array: int, number: int) -> Path:
        """Return the log of a task of an array."""
        return self.folder / "logs" / f"{array:04}-{number}.log"

    def log_tail(self, array: int, number: int) -> str:
        """Return the end of a log; empty without one."""
        path = self.log(array, number)
        return text_tail(path) if path.is_file() else ""

    def publish(self, name: str, array: int, number: int) -> str:
        """Move the results of a completed attempt to the outputs; return why that failed.

        An empty text is success, also where an earlier process did so and died after it.
        """
        work = self.files(array).attempt_folder(number)
        results, target = work / OUT_NAME, self.out / name
        if not results.is_dir():
            return "" if target.is_dir() else f"{results}: its results are gone"
        try:
            if is_empty(target):  # of an application that wrote nothing
                target.rmdir()
            if target.exists():
                return f"{target} is there already; its results stay in {results}"
            try:
                results.rename(target)
            except OSError:  # it is on another file system
                with atomic_folder(target) as partial:
                    shutil.copytree(results, partial, symlinks=True, dirs_exist_ok=True)
            sync(self.out)
        except OSError as error:
            return f"{target}: {error.strerror}; its results stay in {results}"
        shutil.rmtree(work, ignore_errors=True)
        return ""


def _app_versions(plan: Plan) -> dict[str, str]:
    """Return the versions by device; the declared one where this machine lacks a part of it."""
    versions = {}
    for task in plan.tasks:
        if task.requests.device not in versions:
            configuration = Configuration(
                task.requests.device, task.requests.cpus, task.requests.gpus,
                container_engine=plan.container_engine if plan.app.container else "none",
            )  # fmt: skip
            try:
                versions[task.requests.device] = app_version(plan.app, configuration)
            except VoxcastError:
                versions[task.requests.device] = plan.app.version
    return versions


def check_outputs(plan: Plan, out: Path) -> None:
    """Check that no output of a plan is there.

    Raises
    ------
    ConfigError
        Naming the outputs.
    """
    existing = existing_outputs(plan, out)
    if existing:
        more = f" and {len(existing) - 3} more" if len(existing) > 3 else ""
        then = "outputs are never written over: name another folder"
        raise ConfigError(f"is there already: {', '.join(existing[:3])}{more}", out, then)


def existing_outputs(plan: Plan, out: Path) -> list[str]:
    """Return the names of tasks whose outputs are there; an empty folder is none."""
    paths = {task.name: out / task.name for task in plan.tasks}
    return [name for name, path in paths.items() if os.path.lexists(path) and not is_empty(path)]
