"""The speeds of machines that were measured after training, in one JSON file of the project.

An entry is of a machine, an application and the forecaster that its runs were compared with. Those
of another forecaster are passed over until `voxcast.serving.machine_updates` rewrites them.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import Any

from voxcast.files import write_json
from voxcast.models.model_files import read_record
from voxcast.models.speed.speeds import MachineSpeed, SittingSpeed

MACHINES = Path("data/machines.json")  # of a project
VARIABLE = "VOXCAST_MACHINES"  # that names the file for a server
FORMAT = 1
REPAIR = "remove it; `voxcast measure --host` writes it from the runs on record"
LARGEST_LOG = 10.0  # of a speed: no machine is 20,000 times faster

# Speeds by machine, application and hash of the forecaster.
MachineSpeeds = dict[tuple[str, str, str], MachineSpeed]


def read_machines(path: Path) -> MachineSpeeds:
    """Read a file; empty if it does not exist.

    Raises
    ------
    ModelError
        If it is damaged, or of another release.
    """
    return read_record(path, FORMAT, _machines, REPAIR) or {}


def write_machines(path: Path, machines: MachineSpeeds) -> None:
    """Write a file atomically."""
    entries = [
        {"host": host, "app": app, "forecaster_sha256": sha256, "speed": asdict(speed)}
        for (host, app, sha256), speed in sorted(machines.items(), key=lambda entry: entry[0])
    ]
    write_json(path, {"format": FORMAT, "machines": entries})


def _machines(content: dict[str, Any]) -> MachineSpeeds:
    return {
        (str(entry["host"]), str(entry["app"]), str(entry["forecaster_sha256"])): _machine(
            entry["speed"]
        )
        for entry in content["machines"]
    }


def _machine(content: dict[str, Any]) -> MachineSpeed:
    sittings = {
        str(name): SittingSpeed(
            *_estimate(sitting), _count(sitting["runs"]), _time(sitting["last_at"])
        )
        for name, sitting in content["sittings"].items()
    }
    kinds = str(content["host_class"]), str(content["node_type"])
    since = str(content["since"])
    if since:
        date.fromisoformat(since)
    return MachineSpeed(*_estimate(content), _count(content["runs"]), sittings, *kinds, since)


def _estimate(content: dict[str, Any]) -> tuple[float, float]:
    log_speed, sd = float(content["log_speed"]), float(content["sd"])
    if not (math.isfinite(log_speed) and abs(log_speed) <= LARGEST_LOG and 0 <= sd <= LARGEST_LOG):
        raise ValueError(f"a speed of {log_speed} ± {sd}")
    return log_speed, sd


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value} runs")
    return value


def _time(text: Any) -> str:
    if text and datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text} without a time zone")
    return str(text)
