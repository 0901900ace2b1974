"""The draw of a short campaign: as many volumes as fit their expected times into a budget."""

from __future__ import annotations

import bisect
import itertools
import math
from typing import TYPE_CHECKING

from voxcast.apps.app import app_version
from voxcast.apps.parameters import scaled_parameters
from voxcast.campaigns.sweeps import Sweep, Volumes, shuffled
from voxcast.files import sha256_of
from voxcast.records import App, Cell, Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The largest tenth of the volumes comes first, largest first, and may take up to this share of the
# budget: otherwise a short campaign would never learn what a large volume costs.
LARGE_TENTH = 0.1
LARGE_SHARE = 0.5
MANY = 10**9


def expected_s(app: App, mvoxels: float) -> float:
    """Return the expected time of one run of ``app``, before anything has been learned."""
    return app.expected_startup_s + app.expected_s_per_mvoxel * mvoxels


def cells_within(
    sweep: Sweep,
    apps: Sequence[App],
    volumes: Volumes,
    configurations: Sequence[Configuration],
    *,
    budget_s: float,
    seed: int,
    host_class: str,
) -> list[Cell]:
    """Draw the cells of a sweep whose expected times stay within a budget.

    Each chosen volume is run once by every application in every configuration it can use; the
    `repeat_volumes` cheapest are run `repeats` times in all. An application without an image runs
    `repeats` times with its defaults, out of the same budget.

    Returns
    -------
    list of Cell
        Repeats last; volumes and, within a volume, applications and configurations shuffled, so
        that a drift of the machine is not mistaken for an effect of the configuration. At least
        the cheapest volume, if the budget is too small for any.
    """
    wanted = [(app, c) for app in apps for c in configurations if sweep.wants(app, c)]
    pairs = [(app, c) for app, c in wanted if app.input == "volume"]
    bare = [(app, c) for app, c in wanted if app.input == "none"]
    sizes = volumes.mvoxels if pairs else {}
    costs = {v: sum(expected_s(app, size) for app, _ in pairs) for v, size in sizes.items()}
    extra = sweep.repeats - 1
    most = MANY if sweep.volumes is None else sweep.volumes
    many = MANY if sweep.repeat_volumes is None else sweep.repeat_volumes
    left_s = budget_s - sweep.repeats * sum(expected_s(app, 0.0) for app, _ in bare)
    chosen = _choose(costs, most, many, extra, left_s, seed)
    repeated = sorted(chosen, key=lambda v: (costs[v], v))[:many]
    used = {app.name: app for app, _ in wanted}
    versions = {(app.name, c): app_version(app, c) for app, c in wanted}
    parameters = {name: scaled_parameters(app, sweep.scale, {}) for name, app in used.items()}
    cells: list[Cell] = []
    for repeat in range(sweep.repeats):
        names = shuffled(chosen if repeat == 0 else repeated, seed, repeat)
        for volume, group in [*((v, pairs) for v in names), ("", bare)]:
            runs = [
                Cell(
                    app=app.name,
                    app_version=versions[app.name, configuration],
                    parameters=parameters[app.name],
                    volume_id=volume,
                    subject=volumes.subjects.get(volume, ""),
                    configuration=configuration,
                    scale=sweep.scale,
                    repeat=repeat,
                    host_class=host_class,
                )
                for app, configuration in group
            ]
            cells += sorted(runs, key=lambda cell: sha256_of([seed, cell.key]))
    return cells


def _choose(
    costs: Mapping[str, float],
    volumes: int,
    repeat_volumes: int,
    extra: int,
    budget_s: float,
    seed: int,
) -> list[str]:
    order = shuffled(costs, seed, "choose")
    by_cost = sorted(order, key=lambda volume: -costs[volume])
    large = by_cost[: math.ceil(LARGE_TENTH * len(order))]
    chosen: dict[str, None] = {}  # a dict, for order and fast lookup
    sums = 0.0
    sorted_costs: list[float] = []
    for limit_s, group in ((LARGE_SHARE * budget_s, large), (budget_s, order)):
        for volume in group:
            if volume in chosen or len(chosen) >= volumes:
                continue
            position = bisect.bisect(sorted_costs, costs[volume])
            sorted_costs.insert(position, costs[volume])
            repeated = itertools.islice(sorted_costs, repeat_volumes if extra else 0)
            if sums + costs[volume] + extra * sum(repeated) <= limit_s:
                chosen[volume] = None
                sums += costs[volume]
            else:
                del sorted_costs[position]
    return list(chosen) or by_cost[-1:][:volumes]
