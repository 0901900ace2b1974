"""A project whose champion has two applications, one with known machines, one with a network."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from champions import bundle_of_apps, machines_bundle
from small_head import write_head
from voxcast.records import Configuration
from voxcast.serving.bundle import FOLDER, write_bundle
from voxcast.tracking import registry, runs

PROJECT = Path(__file__).parents[1]
RIDGE, NETWORK = "segment", "tile"  # the applications
CONFIGURATIONS = [Configuration("cpu", 1), Configuration("cpu", 2), Configuration("gpu", 2, 1)]


def register_two_apps(folder: Path) -> None:
    """Register the champion in the registry of a project folder, which is the current one."""
    session = runs.connect(folder)
    with runs.run(session, "final", "ridge final") as run_id:
        pass
    with TemporaryDirectory() as work:
        of_machines = machines_bundle(Path(work, "machines"))
        of_network = bundle_of_apps(Path(work, "network"), 6, NETWORK, name="cnn")
        part = of_machines.part(RIDGE)
        served = replace(part.served, configurations=CONFIGURATIONS)
        parts = [replace(part, served=served), of_network.part(NETWORK)]
        bundle = write_bundle(Path(work, FOLDER), parts)
        registry.register(run_id, bundle.folder, NETWORK)


def served_project(folder: Path) -> Path:
    """Write a project with that champion and a head."""
    register_two_apps(folder)
    shutil.copy2(PROJECT / "params.yaml", folder)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    return folder
