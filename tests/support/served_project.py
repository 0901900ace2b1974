"""A project whose champion has an application on known machines, and one with a network."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from champions import bundle_of_apps, machines_bundle
from registries import connected
from small_head import write_head
from voxcast.records import Configuration
from voxcast.serving.bundle import Origin, write_bundle
from voxcast.serving.model_store import ModelStore
from voxcast.tracking import registry, runs
from voxcast.tracking.registry import FOLDER

PROJECT = Path(__file__).parents[2]
RIDGE, NETWORK = "segment", "tile"  # the applications
CONFIGURATIONS = [Configuration("cpu", 1), Configuration("cpu", 2), Configuration("gpu", 2, 1)]


def register_served(folder: Path, *, network: bool) -> None:
    """Register the champion in the registry of a project folder, which is the current one."""
    session = connected(folder)
    with runs.run(session, "final", "ridge final") as run_id:
        pass
    with ModelStore.of(folder).new_folder() as work:
        part = machines_bundle(Path(work, "machines")).part(RIDGE)
        parts = [replace(part, served=replace(part.served, configurations=CONFIGURATIONS))]
        if network:
            of_network = bundle_of_apps(Path(work, "network"), 6, NETWORK, name="cnn")
            parts.append(of_network.part(NETWORK))
        origin = Origin(parts[-1].served.name)
        bundle = write_bundle(Path(work, FOLDER), parts, origin=origin)
        registry.register(folder, run_id, bundle.folder)


def served_project(folder: Path, *, network: bool = True) -> Path:
    """Write a project with that champion, or its first application alone, and a head."""
    register_served(folder, network=network)
    shutil.copy2(PROJECT / "params.yaml", folder)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    return folder
