"""A machine of another speed: the same runs while the other cores press on cache and memory.

The model learns from calm runs and from a few under pressure, as those of another machine, and
predicts the others. Run as ``python benchmarks/speed.py``; some minutes on two cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from voxcast import config
from voxcast.cli.measure_host import AXIS_VOXELS, VOXELS
from voxcast.config.schema import ImagesConfig
from voxcast.features.training_table import build_table
from voxcast.images.catalogue import CATALOGUE, CHARACTERISTICS_TABLE
from voxcast.images.characteristics import VERSIONS
from voxcast.images.image_set import prepare_image_set
from voxcast.measure.host import host_facts
from voxcast.measure.local import run_campaign
from voxcast.measure.plan import CampaignPlan, CampaignSettings, good_volumes
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.point_model import CPU, predict_table
from voxcast.records import TARGETS, Cell, Configuration
from voxcast.runs.series import load_records

CONF = Path(__file__).parents[1] / "conf/app"
SUBJECTS = 8
PRESSURE_BYTES = 256_000_000
MACHINES = {"calm": False, "pressed": True}


def press(core: int) -> None:
    """Copy and gather without end on one core."""
    os.sched_setaffinity(0, {core})
    values = np.random.default_rng(0).random(PRESSURE_BYTES // 8)
    places = np.random.default_rng(1).integers(0, len(values), 1_000_000)
    while True:
        values[: len(values) // 2] = values[len(values) // 2 :]
        values[places] += 1.0


@contextlib.contextmanager
def pressure(cores: list[int]) -> Iterator[None]:
    """Press on these cores during the block."""
    processes = [multiprocessing.Process(target=press, args=(n,), daemon=True) for n in cores]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measured(folder: Path, app_name: str) -> pd.DataFrame:
    """Measure all volumes calmly and under pressure; return the training table."""
    app = config.load_app(CONF, app_name)
    images = ImagesConfig("cohort", None, (), 7019, SUBJECTS, "h", VOXELS, AXIS_VOXELS, ())
    prepare_image_set(images, folder / "images", folder / "catalogue", 64, 16, 10**8)
    catalogue = pd.read_parquet(folder / "catalogue" / CATALOGUE)
    volumes, cores = good_volumes(catalogue), sorted(os.sched_getaffinity(0))
    paths = dict(zip(catalogue["volume_id"], map(Path, catalogue["path"]), strict=True))
    for machine, is_pressed in MACHINES.items():
        cells = [
            Cell(
                app.name, app.version, app.parameters, str(volume), subject,
                Configuration("cpu", 1), "full_scale", 0, machine,
            )
            for volume, subject in volumes["subject"].items()
        ]  # fmt: skip
        plan = CampaignPlan({cell.key: cell for cell in cells}, paths)
        facts = dataclasses.replace(host_facts(), host_id=machine)
        settings = CampaignSettings({app.name: app}, folder / "runs" / machine, host=facts)
        os.sched_setaffinity(0, set(cores[:1]))
        with pressure(cores[1:] if is_pressed else []):
            run_campaign(settings, plan)
        os.sched_setaffinity(0, set(cores))
    runs = pd.concat([load_records(folder / "runs" / machine) for machine in MACHINES])
    characteristics = pd.read_parquet(folder / "catalogue" / CHARACTERISTICS_TABLE)
    values = characteristics.drop(columns=VERSIONS)
    return build_table(runs.assign(noisy=False), catalogue, values)[0]


def errors(table: pd.DataFrame, local_runs: int) -> dict[str, float]:
    """Return the errors of pressed runs, with the speed of their machine and without it."""
    pressed = np.flatnonzero(table["host_id"] == "pressed")
    learned_from = np.isin(np.arange(len(table)), pressed[local_runs:], invert=True)
    params = FAMILIES["voxels"].defaults
    rows = table[learned_from].reset_index(drop=True)
    model = point_model.fit(rows, None, "voxels", params, "volume", 0)
    others = table.iloc[pressed[local_runs:]]
    cpu = TARGETS.index(CPU)
    logs = predict_table(model, others, None)[:, cpu]
    calm = predict_table(model, others.assign(host_id="calm", sitting=""), None)[:, cpu]
    actual = np.log(others[CPU].to_numpy(float))
    speeds = model.speeds
    assert speeds is not None  # noqa: S101  # the runs state their machines
    return {
        "local_runs": local_runs,
        "error_without_speed": float(np.mean(np.abs(np.expm1(calm - actual)))),
        "error_with_speed": float(np.mean(np.abs(np.expm1(logs - actual)))),
        "speed": float(np.exp(speeds.estimate("pressed").log_speed)),
    }


def main() -> None:
    """Print the slowdown under pressure, and the errors by number of local runs."""
    app_name = sys.argv[1] if len(sys.argv) > 1 else "ants_segment"
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        table = measured(Path(folder), app_name)
        os.chdir(before)
    cpu_s = table.pivot_table(index="volume_id", columns="host_id", values=CPU)
    slowdown = float((cpu_s["pressed"] / cpu_s["calm"]).median())
    by_runs = [errors(table, local_runs) for local_runs in (0, 1, 2, 4)]
    print(json.dumps({"app": app_name, "slowdown": slowdown, "errors": by_runs}, indent=2))


if __name__ == "__main__":
    main()
