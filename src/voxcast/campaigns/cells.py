"""Which cells a campaign measures, and in which order: all of its sweeps, interleaved.

Order comes from hashes of the seed and the volume, so adding a volume to the image set leaves the
order of the others as it was. A campaign cut short has measured the same share of every sweep and
application.
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

from voxcast.apps.app import app_version
from voxcast.apps.parameters import scaled_parameters
from voxcast.campaigns.budgets import cells_within, expected_s
from voxcast.campaigns.sweeps import Sweep, Volumes, sweep_cells
from voxcast.files import sha256_of
from voxcast.quantities import format_bytes
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT, App, Cell, Configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from voxcast.profiling.host import HostFacts


def fitting(
    configurations: Iterable[Configuration], facts: HostFacts
) -> tuple[list[Configuration], list[str]]:
    """Return the configurations this machine can run, and why it cannot run the others."""
    fit, notes = [], []
    for configuration in configurations:
        if configuration.gpus > len(facts.gpu_models):
            have = len(facts.gpu_models) or "no"
            notes.append(f"{configuration.label}: left out, there is {have} GPU here")
        elif configuration.cpus > facts.cores:
            notes.append(f"{configuration.label}: left out, there are {facts.cores} CPUs here")
        elif (configuration.mem_limit_bytes or 0) > facts.memory_bytes:
            have = format_bytes(facts.memory_bytes)
            notes.append(f"{configuration.label}: left out, there are {have} of memory here")
        else:
            fit.append(configuration)
    return fit, notes


def with_programs(apps: Mapping[str, App]) -> tuple[dict[str, App], list[str]]:
    """Return the applications whose programs this machine has, and why the others cannot run."""
    present, notes = {}, []
    for name, app in apps.items():
        missing = [program for program in app.programs if shutil.which(program) is None]
        if missing:
            notes.append(f"{name}: left out, {missing[0]} is not on PATH")
        else:
            present[name] = app
    return present, notes


def good_volumes(rows: pd.DataFrame) -> Volumes:
    """Return the good volumes of a catalogue; the same voxels count once."""
    good = rows[rows["problem"].isna()].drop_duplicates("volume_id")
    counts = good[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1) / 1e6
    names = good["volume_id"].astype(str)
    return Volumes(
        mvoxels=dict(zip(names, counts.astype(float), strict=True)),
        subjects=dict(zip(names, good["subject"].astype(str), strict=True)),
    )


def draw_cells(
    sweeps: Sequence[Sweep],
    apps: Mapping[str, App],
    volumes: Volumes,
    configurations: Sequence[Configuration],
    *,
    budget_s: float | None,
    seed: int,
    host_class: str,
) -> dict[str, Cell]:
    """Return the cells of a campaign by key, in the order to run them.

    Parameters
    ----------
    configurations : sequence of Configuration
        Those that fit this machine, see `fitting`.
    budget_s : float, optional
        What sweeps that choose ``within_budget`` may fill.

    Raises
    ------
    ConfigError
        If a sweep names a parameter that an application does not have.
    """
    groups: list[list[Cell]] = []
    for sweep in sweeps:
        chosen = [app for app in apps.values() if not sweep.apps or app.name in sweep.apps]
        if sweep.choose == "within_budget":
            groups.append(
                cells_within(
                    sweep, chosen, volumes, configurations,
                    budget_s=budget_s or 0.0, seed=seed, host_class=host_class,
                )
            )  # fmt: skip
            continue
        groups += [
            sweep_cells(sweep, app, volumes, configurations, seed=seed, host_class=host_class)
            for app in chosen
        ]
    return _interleaved(groups, seed)


def _interleaved(groups: Sequence[Sequence[Cell]], seed: int) -> dict[str, Cell]:
    """Return all cells by key so that every stretch holds the same share of every group."""
    seen: dict[str, Cell] = {}
    keys_by_group: list[list[str]] = []
    for group in groups:  # a cell of several sweeps belongs to the first
        keyed = {cell.key: cell for cell in group}
        keys_by_group.append([key for key in keyed if key not in seen])
        seen |= {key: keyed[key] for key in keys_by_group[-1]}
    placed = [
        ((rank + 0.5) / len(keys), sha256_of([seed, key]), key)
        for keys in keys_by_group
        for rank, key in enumerate(keys)
    ]
    return {key: seen[key] for _, _, key in sorted(placed)}


def anchor_cells(
    sweeps: Sequence[Sweep],
    apps: Mapping[str, App],
    volumes: Volumes,
    configurations: Sequence[Configuration],
    count: int,
    host_class: str,
) -> list[Cell]:
    """Return the first cells of every sitting, whose times show the drift of the machine.

    Each application with its defaults, on the fewest CPUs of each of its devices, on ``count``
    fixed volumes from the smallest tenth upwards, or once where there is no image. The repeat is
    `ANCHOR_REPEAT`, to which a sitting adds its number.
    """
    by_size = sorted(volumes.mvoxels, key=lambda v: (volumes.mvoxels[v], v))
    small = by_size[len(by_size) // 10 :][:count]
    cells = []
    for app in apps.values():
        wanted = [c for c in configurations if any(sweep.wants(app, c) for sweep in sweeps)]
        fewest = {c.device: c for c in sorted(wanted, key=lambda c: -c.cpus)}
        for configuration in fewest.values():
            cells += [
                Cell(
                    app=app.name,
                    app_version=app_version(app, configuration),
                    parameters=scaled_parameters(app, "full_scale", {}),
                    volume_id=volume,
                    subject=volumes.subjects.get(volume, ""),
                    configuration=configuration,
                    scale="full_scale",
                    repeat=ANCHOR_REPEAT,
                    host_class=host_class,
                )
                for volume in (small if app.input == "volume" else [""] * min(count, 1))
            ]
    return cells


def repeat_of(cell: Cell) -> Cell:
    """Return the cell that repeats a noisy run of ``cell``."""
    return dataclasses.replace(cell, repeat=cell.repeat + NOISY_REPEAT)


def expected_times(
    cells: Mapping[str, Cell], apps: Mapping[str, App], volumes: Volumes
) -> dict[str, float]:
    """Return the expected seconds of each cell by its key."""
    sizes = volumes.mvoxels
    return {
        key: expected_s(apps[cell.app], sizes.get(cell.volume_id, 0.0))
        for key, cell in cells.items()
    }
