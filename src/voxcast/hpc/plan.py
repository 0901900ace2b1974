"""What is to be run on a cluster: an application, its tasks, and where results go.

A plan is a JSON file with a version. It is complete: a login node without a project, a model or
Hydra can submit it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import ConfigError
from voxcast.hpc.escalation import Bounds
from voxcast.hpc.tasks import Task
from voxcast.records import App, of_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAN_VERSION = 1
VERSION_KEY = "voxcast_plan"


@dataclass(frozen=True)
class SlurmOptions:
    """Options of ``sbatch`` that no prediction decides.

    Attributes
    ----------
    throttle : int or None
        Tasks of an array that may run at a time, ``%N``.
    """

    account: str = ""
    qos: str = ""
    constraint: str = ""
    throttle: int | None = None

    def options(self) -> list[str]:
        """Return the options of ``sbatch``."""
        fields = {"account": self.account, "qos": self.qos, "constraint": self.constraint}
        return [f"--{name}={value}" for name, value in fields.items() if value]


@dataclass(frozen=True)
class Plan:
    """Tasks of one application.

    Attributes
    ----------
    container_engine : str
        One of `voxcast.apps.containers.PROGRAMS`.
    bounds : Bounds
        Where attempts of any task end; a task may have narrower ones.
    stall_s : float or None
        A task that uses no CPU for this long is stopped; None: never.
    """

    app: App
    tasks: tuple[Task, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    container_engine: str = "none"
    cluster: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    stall_s: float | None = None

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
        try:
            bounds: dict[str, Any] = {
                name: math.inf if value is None else value
                for name, value in fields["bounds"].items()
            }
            return cls(
                of_fields(App, fields["app"]),
                tuple(map(Task.from_record, fields["tasks"])),
                dict(fields["parameters"]),
                fields["container_engine"],
                fields["cluster"],
                Bounds(**bounds),
                SlurmOptions(**fields["slurm"]),
                fields["stall_s"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if made_by != here:
                problem = f"cannot be read ({error}), made by voxcast {made_by}"
                raise ConfigError(problem, where, then) from None
            raise ConfigError(f"not a plan: {error!r}", where, "make it again") from None

    def to_record(self) -> dict[str, Any]:
        """Return the plan as an object that `json` can write; null stands for no bound."""
        bounds = {k: v if math.isfinite(v) else None for k, v in asdict(self.bounds).items()}
        return {
            VERSION_KEY: PLAN_VERSION,
            "voxcast_version": voxcast.__version__,
            "app": asdict(self.app),
            "tasks": [task.to_record() for task in self.tasks],
            "parameters": self.parameters,
            "container_engine": self.container_engine,
            "cluster": self.cluster,
            "bounds": bounds,
            "slurm": asdict(self.slurm),
            "stall_s": self.stall_s,
        }


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
