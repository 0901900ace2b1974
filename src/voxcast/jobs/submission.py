"""A submission: its plan, and its folder of scripts, logs and an append-only record of events.

A plan is complete, and a JSON file with a version: a login node without a project, a model or
Hydra can submit it.

Any process can continue from the folder, which is private to the user::

    submission.json     plan without its tasks, folder of outputs, executor
    tasks.jsonl         one task a line
    events.jsonl        one line for each array prepared and submitted, and each attempt ended
    arrays/0001.sbatch  script of an array, beside its list of tasks, 0001.tasks
    logs/0001-3.log     output of its third task
    work/0001-3         where that task works; its results move to OUT/NAME when it has completed
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.apps.app import app_version
from voxcast.errors import ConfigError, VoxcastError
from voxcast.files import atomic_path, sync, text_tail, write_json
from voxcast.jobs.escalate import Limits
from voxcast.jobs.task import Task
from voxcast.records import App, Configuration, Prediction, as_fields, of_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from voxcast.allocation.site import Cluster

SUBMISSIONS = ".voxcast"  # in the folder of outputs
SUBMISSION_FILE, TASKS_FILE, EVENTS_FILE = "submission.json", "tasks.jsonl", "events.jsonl"
OUT_NAME = "out"  # of the folder of results, in the folder of an attempt
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
PLAN_VERSION = 2
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
    throttle : int or None
        Tasks of an array that may run at a time, ``%N``.
    further : tuple of str
        Any others, as ``KEY=VALUE`` or ``KEY``.
    memory_per_cpu : tuple of str
        Partitions that take ``--mem-per-cpu`` only.
    """

    account: str = ""
    qos: str = ""
    constraint: str = ""
    throttle: int | None = None
    further: tuple[str, ...] = ()
    memory_per_cpu: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Return the options of ``sbatch``."""
        fields = {"account": self.account, "qos": self.qos, "constraint": self.constraint}
        named = [f"--{name}={value}" for name, value in fields.items() if value]
        return named + [f"--{option}" for option in self.further]


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
class Plan:
    """Tasks of one application.

    Attributes
    ----------
    container_engine : str
        ``none``, or one of `voxcast.apps.containers.ENGINES`.
    limits : Limits
        Where attempts of any task end; a task may have narrower ones.
    stall_s : float or None
        A task that uses no CPU for this long is stopped; None: never.
    added_memory_bytes : int
        That the site counts beyond the memory which is predicted, such as mapped files.
    """

    app: App
    tasks: tuple[Task, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    container_engine: str = "none"
    cluster: str = ""
    limits: Limits = field(default_factory=Limits)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    stall_s: float | None = None
    added_memory_bytes: int = 0

    @classmethod
    def from_record(cls, fields: Mapping[str, Any], where: Path) -> Plan:
        """Return the plan with the fields that `to_record` gave.

        Raises
        ------
        ConfigError
            If it is of another version, or is not a plan.
        """
        version = fields.get(VERSION_KEY)
        made_by, here = fields.get("voxcast_version", "unknown"), voxcast.__version__
        then = f"use that release; this is voxcast {here}"
        if version != PLAN_VERSION:
            problem = f"a plan of version {version}, not {PLAN_VERSION}, made by voxcast {made_by}"
            raise ConfigError(problem, where, then)
        values = {name: fields[name] for name in cls.__dataclass_fields__ if name in fields}
        try:
            return of_fields(cls, values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if made_by != here:
                problem = f"cannot be read ({error}), made by voxcast {made_by}"
                raise ConfigError(problem, where, then) from None
            raise ConfigError(f"not a plan: {error!r}", where, "make it again") from None

    def to_record(self) -> dict[str, Any]:
        """Return the plan as an object that `json` can write; null stands for no limit."""
        versions = {VERSION_KEY: PLAN_VERSION, "voxcast_version": voxcast.__version__}
        return versions | as_fields(self)


def is_plan(content: Mapping[str, Any]) -> bool:
    """Return whether an object is a plan, as ``voxcast submit --dry-run --json`` writes it."""
    return VERSION_KEY in content


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises
    ------
    ConfigError
        If it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such file", path) from None
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
        if _CONTROL.search(str(folder)) or _CONTROL.search(str(out)):
            raise ConfigError("has a line break or control character in its name", repr(str(out)))
        if executor == "slurm" and "\\" in str(folder):
            problem = "has a backslash in its name, after which Slurm numbers no logs"
            raise ConfigError(problem, folder, "name another with --folder")
        try:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise ConfigError("is not an empty folder", folder, "name another with --folder")
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(exist_ok=True, mode=0o700)
        except PermissionError:
            then = "give a folder of your own by --folder"
            raise ConfigError("belongs to another user", folder.parent, then) from None
        out.mkdir(parents=True, exist_ok=True)  # last, as it may be in that folder
        versions = _app_versions(plan)
        content = plan.to_record() | {
            "out": str(out), "executor": executor, "label": label, "app_versions": versions,
        }  # fmt: skip
        tasks = "".join(f"{json.dumps(task)}\n" for task in content.pop("tasks"))
        try:
            folder.chmod(0o700)
            for name in ("arrays", "logs", "work"):
                (folder / name).mkdir()
            private_text(folder / EVENTS_FILE, "")
            private_text(folder / TASKS_FILE, tasks)
            write_json(folder / SUBMISSION_FILE, content)
            (folder / SUBMISSION_FILE).chmod(0o600)
        except OSError:  # as of a full disk: half a submission would be in the way of the next
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(folder, plan, out, executor, label, versions)

    @classmethod
    def open(cls, folder: Path) -> Submission:
        """Open the folder of a submission, or of outputs with one submission.

        Raises
        ------
        ConfigError
            If the folder has none, or several.
        """
        home = folder
        if not (folder / SUBMISSION_FILE).is_file():
            below = sorted((folder / SUBMISSIONS).glob(f"*/{SUBMISSION_FILE}"))
            private = folder / SUBMISSIONS
            if not below and private.is_dir() and not os.access(private, os.R_OK | os.X_OK):
                then = "name the folder of your submission, as its --folder"
                raise ConfigError("belongs to another user", private, then)
            if not below:
                raise ConfigError("no submission here", folder, "name the folder of one")
            if len(below) > 1:
                names = ", ".join(str(path.parent) for path in below)
                raise ConfigError(f"has {len(below)} submissions", folder, f"name one: {names}")
            home = below[0].parent
        path = home / SUBMISSION_FILE
        content = read_json_object(path)
        try:
            lines = (home / TASKS_FILE).read_text(encoding="utf-8").splitlines()
            content["tasks"] = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            content.setdefault("tasks", f"without {TASKS_FILE}")  # refused below
        plan = Plan.from_record(content, path)
        try:
            out, executor, label = Path(content["out"]), content["executor"], content["label"]
        except (KeyError, TypeError):
            raise ConfigError("not a submission", path) from None
        versions = dict(content.get("app_versions", {}))
        return cls(Path(os.path.abspath(home)), plan, out, executor, label, versions)  # noqa: PTH100

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happened so far."""
        return read_events(self.folder / EVENTS_FILE)

    def record(self, event: dict[str, Any]) -> None:
        """Append an event, on disk when this returns."""
        append_event(self.folder / EVENTS_FILE, event)

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
        try:
            return text_tail(self.log(array, number))
        except OSError:
            return ""

    def publish(self, name: str, array: int, number: int) -> str:
        """Move the results of a completed attempt to the outputs; return why that failed.

        An empty text is success, also where an earlier process did so and died after it.
        """
        work = self.files(array).attempt_folder(number)
        results, target = work / OUT_NAME, self.out / name
        if results.is_dir():
            if target.exists():
                return f"{target} is there already; its results stay in {results}"
            try:
                results.rename(target)
            except OSError as error:
                if target.exists():
                    return f"{target} is there already; its results stay in {results}"
                try:
                    _copied(results, target)
                except OSError:
                    return f"{target}: {error.strerror}; its results stay in {results}"
            sync(self.out)
        elif not target.is_dir():
            return f"{results}: its results are gone"
        shutil.rmtree(work, ignore_errors=True)
        return ""

    def discard(self, array: int, number: int) -> None:
        """Remove the remains of an attempt that is made again."""
        shutil.rmtree(self.files(array).attempt_folder(number), ignore_errors=True)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file; a last line that was cut off is left out."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        with contextlib.suppress(ValueError):  # its writer was killed, or the disk was full
            yield json.loads(line)


def append_event(path: Path, event: dict[str, Any]) -> None:
    """Append an event to a file, on disk when this returns."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    line = json.dumps({**event, "at": now}, allow_nan=False)
    with path.open("ab+") as stream:
        end = stream.seek(0, os.SEEK_END)
        if end:
            stream.seek(end - 1)
            if stream.read(1) != b"\n":
                line = f"\n{line}"
        stream.write(f"{line}\n".encode())
        stream.flush()
        os.fsync(stream.fileno())


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


def _copied(results: Path, target: Path) -> None:
    """Copy results to another file system, complete or not at all."""
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(results, partial, symlinks=True)
    partial.rename(target)


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
        then = "outputs are never written over: name another --out, or give --skip-existing"
        raise ConfigError(f"is there already: {', '.join(existing[:3])}{more}", out, then)


def existing_outputs(plan: Plan, out: Path) -> list[str]:
    """Return the names of tasks whose outputs are there."""
    return [task.name for task in plan.tasks if os.path.lexists(out / task.name)]


def private_text(path: Path, text: str) -> None:
    """Write a file that only the user may read; names of files may be of any encoding."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o600)
