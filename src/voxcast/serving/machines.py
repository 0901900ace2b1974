"""The speeds of machines that were measured after training, in one JSON file of the project.

An entry is of a machine, an application and the forecaster that its runs were compared with. Those
of another forecaster are ignored until `update_machines` rewrites them, from runs on record that
the champion did not learn from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.features.rows import KERNEL_S, features
from voxcast.files import write_json
from voxcast.models.model_files import read_record
from voxcast.models.point_model import Query
from voxcast.models.speeds import (
    MachineSpeed,
    RunResidual,
    SittingSpeed,
    for_another_application,
    residuals_of,
    updated,
)
from voxcast.records import Configuration, of_fields

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.speeds import Speeds
    from voxcast.serving.bundle import Bundle

MACHINES = Path("data/machines.json")  # of a project
VARIABLE = "VOXCAST_MACHINES"  # that names the file for a server
FORMAT = 1
REPAIR = "remove it; `voxcast measure --host` writes it from the runs on record"
LARGEST_LOG = 10.0  # of a speed: no machine is 20,000 times faster
RUNS, CATALOGUE, CAMPAIGNS = "runs", "catalogue", "campaigns"

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


def _machine(content: Any) -> MachineSpeed:
    machine = of_fields(MachineSpeed, content)
    speeds: list[MachineSpeed | SittingSpeed] = [machine, *machine.sittings.values()]
    for speed in speeds:
        if not (abs(speed.log_speed) <= LARGEST_LOG and 0 <= speed.sd <= LARGEST_LOG):
            raise ValueError(f"a speed of {speed.log_speed} ± {speed.sd}")
        if speed.runs < 0:
            raise ValueError(f"{speed.runs} runs")
    for sitting in machine.sittings.values():
        if sitting.last_at and datetime.fromisoformat(sitting.last_at).tzinfo is None:
            raise ValueError(f"{sitting.last_at} without a time zone")
    return machine


@dataclass(frozen=True)
class ProjectRuns:
    """Runs measured in a project, with the volumes that they were made on by id."""

    runs: pd.DataFrame
    volumes: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, project: Path) -> ProjectRuns:
        """Read the runs of the project and of its campaigns; broken records are left out."""
        import pandas as pd

        from voxcast.images.catalogue import ON_RECORD, read_on_record
        from voxcast.runs.series import MEASURED, load_records
        from voxcast.runs.speed import kernel_times

        data = project / "data"
        # The project has a folder of runs for each device.
        paths = [*(project / MEASURED).glob("*"), *(data / CAMPAIGNS).glob(f"*/{RUNS}")]
        folders = sorted(path for path in paths if path.is_dir())
        tables = [load_records(folder) for folder in folders]
        for folder, runs in zip(folders, tables, strict=True):
            if folder.parent.parent.name == CAMPAIGNS:  # they number their own sittings
                runs["sitting"] = f"{folder.parent.name}/" + runs["sitting"]
        volumes: dict[str, dict[str, Any]] = {}
        for path in (data, *sorted((data / CAMPAIGNS).glob("*"))):
            if (path / CATALOGUE / ON_RECORD).is_file():
                on_record = read_on_record(path / CATALOGUE / ON_RECORD)
                for row in on_record.to_dict("records"):
                    volumes[str(row["volume_id"])] = {str(key): row[key] for key in row}
        if not tables:
            return cls(pd.DataFrame(), {})
        runs = pd.concat(tables, ignore_index=True).drop_duplicates("cell_key")
        runs[KERNEL_S] = runs["cell_key"].map(kernel_times(runs))
        return cls(runs, volumes)

    def hosts(self) -> list[tuple[str, str]]:
        """Return the id and the host class of each machine with runs."""
        if not len(self.runs):
            return []
        named = self.runs[self.runs["host_id"] != ""]
        classes = named.groupby("host_id", sort=True)["host_class"].last()
        return [(str(host), str(host_class)) for host, host_class in classes.items()]


def update_machines(project: Path, bundle: Bundle) -> MachineSpeeds:
    """Write the speeds of all machines with runs in a project, and return them.

    Entries of machines whose runs are not here, such as those copied from elsewhere, stay if they
    are of the same forecaster.
    """
    on_record = ProjectRuns.read(project)
    path = project / MACHINES
    hashes = {app: served.forecaster_sha256 for app, served in bundle.apps.items()}
    machines = {
        key: speed for key, speed in read_machines(path).items() if hashes.get(key[1]) == key[2]
    }
    by_app = {
        app: speeds for app in bundle.apps if (speeds := bundle.forecaster(app).speeds) is not None
    }
    for host, host_class in on_record.hosts():
        for app, speed in _machine_by_app(bundle, by_app, on_record, host, host_class).items():
            machines[host, app, hashes[app]] = speed
    write_machines(path, machines)
    return machines


def _machine_by_app(
    bundle: Bundle,
    by_app: Mapping[str, Speeds],
    on_record: ProjectRuns,
    host: str,
    host_class: str,
) -> dict[str, MachineSpeed]:
    """Return the speed of a machine for each application with something to tell it.

    These are its own runs, or else runs of other applications.
    """
    residuals = {app: run_residuals(bundle, app, on_record, host) for app in by_app}
    measured = {
        app: updated(speeds, host, residuals[app], host_class=host_class).estimate(host)
        for app, speeds in by_app.items()
        if residuals[app] or host in speeds.machines
    }
    machines = {}
    for app, speeds in by_app.items():
        elsewhere = for_another_application([measured[a] for a in measured if a != app])
        if residuals[app] or (host not in speeds.machines and elsewhere is not None):
            after = updated(
                speeds, host, residuals[app], elsewhere=elsewhere, host_class=host_class
            )
            machines[app] = after.measured(host)
    return machines


def run_residuals(
    bundle: Bundle, app: str, on_record: ProjectRuns, host: str
) -> list[RunResidual]:
    """Return the residuals of the completed runs of an application on a machine.

    Runs that the forecaster learned from, of another version of the application, scaled down, on a
    volume without a declared characteristic on record, or out of the forecaster's range
    are left out.
    """
    served, trained_on = bundle.apps[app], set(bundle.trained_on(app).cell_keys)
    runs = on_record.runs
    runs = runs[
        (runs["app"] == app)
        & (runs["host_id"] == host)
        & (runs["outcome"] == "completed")
        & (runs["scale"] == "full_scale")
        & (runs["cpu_s"] > 0)
        & runs["app_version"].map(lambda version: _is_of(version, served.promotion.app_version))
        & ~runs["cell_key"].isin(trained_on)
    ]
    chosen, queries = [], []
    for run in runs.to_dict("records"):
        volume = on_record.volumes.get(run["volume_id"])
        if volume is None:
            continue
        contents = {name: float(volume.get(name, math.nan)) for name in served.characteristics}
        if not all(map(math.isfinite, contents.values())):
            continue
        configuration = Configuration(run["device"], int(run["cpus"]), int(run["gpus"]))
        parameters = json.loads(run["parameters_json"] or "{}")
        # The predictions are those at the average speed of the training runs.
        queries.append(Query(features(volume, contents, app, parameters, configuration)))
        chosen.append(run)
    if not chosen:
        return []
    return residuals_of(chosen, bundle.forecaster(app).predict(queries))


def _is_of(version: str, declared: str) -> bool:
    """Tell whether a run was of a declared version.

    It is recorded with the packages, files and container that it ran with, as
    `voxcast.apps.app.app_version` states them; imports may state no version.
    """
    return version in ("", declared) or version.startswith(f"{declared}+")
