"""A project whose champion has an application on known machines, and one with a network."""

import shutil
from dataclasses import replace
from pathlib import Path

from champions import bundle_of_apps, machines_bundle, register
from small_head import write_head
from voxcast.records import Configuration
from voxcast.serving.bundle import Bundle, Origin, write_bundle
from voxcast.tracking.registry import FOLDER

PROJECT = Path(__file__).parents[2]
RIDGE, NETWORK = "segment", "tile"  # the applications
CONFIGURATIONS = [Configuration("cpu", 1), Configuration("cpu", 2), Configuration("gpu", 2, 1)]


def served_bundle(work: Path, *, network: bool) -> Bundle:
    """Write the bundle of the champion."""
    part = machines_bundle(work / "machines").part(RIDGE)
    parts = [replace(part, served=replace(part.served, configurations=CONFIGURATIONS))]
    if network:
        parts.append(bundle_of_apps(work / "network", 6, NETWORK, name="cnn").part(NETWORK))
    return write_bundle(work / FOLDER, parts, origin=Origin(parts[-1].served.name))


def served_project(folder: Path, *, network: bool = True) -> Path:
    """Write a project with that champion, or its first application alone, and a head."""
    register(folder, lambda work: served_bundle(Path(work), network=network))
    shutil.copy2(PROJECT / "params.yaml", folder)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    return folder
