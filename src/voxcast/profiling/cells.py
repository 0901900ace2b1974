"""Which cells a campaign measures, and in which order: drawn from a seed, within a budget.

Order comes from hashes of the seed and the volume, so adding a volume to the image set leaves the
order of the others as it was.
"""

from __future__ import annotations

import bisect
import itertools
import math
from typing import TYPE_CHECKING, Any

from voxcast.apps.catalogue import app_version, merged_parameters
from voxcast.files import sha256_of
from voxcast.records import App, Cell, Configuration, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from voxcast.profiling.host import HostFacts

# The largest tenth of the volumes comes first, largest first, and may take up to this share of the
# budget: otherwise a short campaign would never learn what a large volume costs.
LARGE_TENTH = 0.1
LARGE_SHARE = 0.5


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
        else:
            fit.append(configuration)
    return fit, notes


def expected_s(app: App, mvoxels: float) -> float:
    """Return the expected time of one run of ``app``, before anything has been learned."""
    return app.expected_startup_s + app.expected_s_per_mvoxel * mvoxels


def mvoxels(rows: pd.DataFrame) -> dict[str, float]:
    """Return millions of voxels by volume id, for the good rows of a catalogue."""
    good = rows[rows["problem"].isna()].drop_duplicates("volume_id")
    counts = good[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1) / 1e6
    return dict(zip(good["volume_id"].astype(str), counts.astype(float), strict=True))


def draw_cells(
    apps: Mapping[str, App],
    rows: pd.DataFrame,
    configurations: Sequence[Configuration],
    *,
    volumes: int,
    repeat_volumes: int,
    repeats: int,
    budget_s: float,
    scale: Scale,
    seed: int,
    host_class: str,
) -> list[Cell]:
    """Draw the cells of a campaign.

    Each chosen volume is run once by every application in every configuration of a device the
    application can use; the `repeat_volumes` cheapest are run `repeats` times in all.

    Parameters
    ----------
    apps : mapping
        Applications by name.
    rows : DataFrame
        The catalogue; a volume with a problem is passed over, the same voxels count once.
    configurations : sequence of Configuration
        Those that fit this machine, see `fitting`.
    volumes : int
        At most so many volumes.
    budget_s : float
        The expected times of all cells stay within it, unless no volume at all would fit.

    Returns
    -------
    list of Cell
        Repeats last; volumes and, within a volume, applications and configurations shuffled, so
        that a drift of the machine is not mistaken for an effect of the configuration.
    """
    pairs = [(a, c) for a in apps.values() for c in configurations if c.device in a.devices]
    sizes = mvoxels(rows)
    if not pairs or not sizes or repeats < 1:
        return []
    costs = {v: sum(expected_s(app, size) for app, _ in pairs) for v, size in sizes.items()}
    chosen = _choose(costs, volumes, repeat_volumes, repeats - 1, budget_s, seed)
    repeated = sorted(chosen, key=lambda v: (costs[v], v))[:repeat_volumes]
    subjects = dict(zip(rows["volume_id"].astype(str), rows["subject"].astype(str), strict=True))
    used = {app.name: app for app, _ in pairs}
    versions = {name: app_version(app) for name, app in used.items()}
    parameters: dict[str, dict[str, Any]] = {n: merged_parameters(a, {}) for n, a in used.items()}
    cells = []
    for repeat in range(repeats):
        for volume in _shuffled(chosen if repeat == 0 else repeated, seed, repeat):
            runs = [
                Cell(
                    app=app.name,
                    app_version=versions[app.name],
                    parameters=parameters[app.name],
                    volume_id=volume,
                    subject=subjects[volume],
                    configuration=configuration,
                    scale=scale,
                    repeat=repeat,
                    host_class=host_class,
                )
                for app, configuration in pairs
            ]
            cells += sorted(runs, key=lambda cell: sha256_of([seed, cell.key]))
    return cells


def expected_times(
    cells: Iterable[Cell], apps: Mapping[str, App], rows: pd.DataFrame
) -> dict[str, float]:
    """Return the expected seconds of each cell by its key."""
    sizes = mvoxels(rows)
    return {cell.key: expected_s(apps[cell.app], sizes[cell.volume_id]) for cell in cells}


def _choose(
    costs: Mapping[str, float],
    volumes: int,
    repeat_volumes: int,
    extra: int,
    budget_s: float,
    seed: int,
) -> list[str]:
    order = _shuffled(costs, seed, "choose")
    by_cost = sorted(order, key=lambda volume: -costs[volume])
    large = by_cost[: math.ceil(LARGE_TENTH * len(order))]
    chosen: list[str] = []
    sums = 0.0
    sorted_costs: list[float] = []
    for limit_s, group in ((LARGE_SHARE * budget_s, large), (budget_s, order)):
        for volume in group:
            if volume in chosen or len(chosen) >= volumes:
                continue
            at = bisect.bisect(sorted_costs, costs[volume])
            sorted_costs.insert(at, costs[volume])
            cheapest = sum(itertools.islice(sorted_costs, repeat_volumes))
            if sums + costs[volume] + extra * cheapest <= limit_s:
                chosen.append(volume)
                sums += costs[volume]
            else:
                del sorted_costs[at]
    return chosen or by_cost[-1:][:volumes]


def _shuffled(volumes: Iterable[str], seed: int, what: object) -> list[str]:
    return sorted(volumes, key=lambda volume: sha256_of([seed, what, volume]))
