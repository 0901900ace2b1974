"""The work for a cluster: an application, its tasks, and options of the scheduler.

A plan is a JSON file with a version. It is complete: a login node without a project, a model or
Hydra can submit it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import ConfigError
from voxcast.jobs.escalate import Limits
from voxcast.jobs.task import Task
from voxcast.records import App, as_fields, of_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from voxcast.allocation.site import Cluster

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
        One of `voxcast.apps.containers.PROGRAMS`.
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
        own = {name: fields[name] for name in cls.__dataclass_fields__ if name in fields}
        try:
            return of_fields(cls, own)
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
