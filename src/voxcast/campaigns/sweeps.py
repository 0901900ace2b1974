"""A sweep: some applications with some parameters on some of the volumes, as cells to measure.

Volumes are taken in an order by hash, so a sweep over 40 of them is part of one over 120, and an
additional volume in the image set leaves the order of the others as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from voxcast.apps.app import app_version
from voxcast.apps.parameters import scaled_parameters
from voxcast.campaigns.designs import latin_hypercube, product
from voxcast.errors import ConfigError
from voxcast.files import canonical_json, sha256_of
from voxcast.records import App, Cell, Configuration, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOG_DECADES = 100  # a range of an application this wide, high over low, is drawn on a log scale


@dataclass(frozen=True)
class Sweep:
    """Part of a campaign; ``choose: within_budget`` is drawn in `voxcast.campaigns.cells`."""

    name: str
    apps: tuple[str, ...]  # of those chosen; empty for all
    parameters: dict[str, Any]  # see voxcast.campaigns.designs
    # None is every combination of values; a number that many points of a Latin hypercube, over the
    # ranges the application states itself if `parameters` is empty, and each on one volume.
    sample: int | None
    scale: Scale
    volumes: int | None  # None for all
    volumes_offset: int  # this many are skipped first
    cpus: tuple[int, ...]  # of those of the device; empty for all
    repeats: int  # runs of each, in all
    # How many volumes (points, where there is no image) are run more than once; None for all of
    # them. They are the cheapest within a budget, else drawn from the smaller half.
    repeat_volumes: int | None
    choose: Literal["all", "within_budget"]

    def wants(self, app: App, configuration: Configuration) -> bool:
        """Tell whether ``app`` is to run in ``configuration``."""
        named = not self.apps or app.name in self.apps
        cpus = not self.cpus or configuration.cpus in self.cpus
        return named and cpus and configuration.device in app.devices


@dataclass(frozen=True)
class Volumes:
    """Sizes and subjects of the usable volumes of an image set, by volume id."""

    mvoxels: dict[str, float]
    subjects: dict[str, str]


def shuffled(names: Iterable[str], seed: int, salt: object) -> list[str]:
    """Return ``names`` in the order of their hashes."""
    return sorted(names, key=lambda name: sha256_of([seed, salt, name]))


def points(sweep: Sweep, app: App, seed: int) -> list[dict[str, Any]]:
    """Return all parameters of each point of ``sweep`` for ``app``.

    The points depend on the seed, the application and what is swept, not on the scale: those of a
    scaled-down sweep are those of the full one, scaled down.
    """
    if sweep.sample is None:
        return [scaled_parameters(app, sweep.scale, p) for p in product(sweep.parameters)]
    values = sweep.parameters or {name: _range(r) for name, r in app.ranges.items()}
    if not values:
        raise ConfigError("has no ranges to draw from", app.name, f"see sweep {sweep.name}")
    drawn = latin_hypercube(values, sweep.sample, [seed, app.name])
    if not sweep.parameters and sweep.scale == "scaled_down":
        # Scaled-down parameters are not drawn; all others are as in the full-scale run.
        drawn = [
            {name: value for name, value in point.items() if name not in app.scaled_down}
            for point in drawn
        ]
    return [scaled_parameters(app, sweep.scale, point) for point in drawn]


def _range(choice: Sequence[Any]) -> Any:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in choice)
    if len(choice) != 2 or not numbers:
        return list(choice)
    low, high = choice
    return {"low": low, "high": high, "log": low > 0 and high / low >= LOG_DECADES}


def sweep_cells(
    sweep: Sweep,
    app: App,
    volumes: Volumes,
    configurations: Sequence[Configuration],
    *,
    seed: int,
    host_class: str,
) -> list[Cell]:
    """Return the cells of ``app`` in ``sweep``, shuffled by volume and repeat."""
    wanted = [c for c in configurations if sweep.wants(app, c)]
    if not wanted:
        return []
    tried = points(sweep, app, seed)
    versions = {c: app_version(app, c) for c in wanted}
    ordered: list[tuple[str, str, Cell]] = []
    for parameters, volume, repeated in _items(sweep, app, volumes, tried, seed):
        for repeat in range(sweep.repeats if repeated else 1):
            turn = sha256_of([seed, volume or canonical_json(parameters), repeat])
            for configuration in wanted:
                cell = Cell(
                    app=app.name,
                    app_version=versions[configuration],
                    parameters=parameters,
                    volume_id=volume,
                    subject=volumes.subjects.get(volume, ""),
                    configuration=configuration,
                    scale=sweep.scale,
                    repeat=repeat,
                    host_class=host_class,
                )
                ordered.append((turn, sha256_of([seed, turn, configuration.label]), cell))
    ordered.sort(key=lambda entry: entry[:2])
    return [cell for _, _, cell in ordered]


def _items(
    sweep: Sweep,
    app: App,
    volumes: Volumes,
    tried: Sequence[dict[str, Any]],
    seed: int,
) -> list[tuple[dict[str, Any], str, bool]]:
    """Return parameters, volume, and whether they are run more than once."""
    if app.input == "none":
        most = len(tried) if sweep.repeat_volumes is None else sweep.repeat_volumes
        return [(parameters, "", n < most) for n, parameters in enumerate(tried)]
    order = shuffled(volumes.mvoxels, seed, "choose")[sweep.volumes_offset :]
    chosen = order[: sweep.volumes]
    repeated = set(chosen)
    if sweep.repeat_volumes is not None:
        repeated = set(_smaller_half(volumes, chosen)[: sweep.repeat_volumes])
    if sweep.sample is not None:
        return [
            (parameters, chosen[n % len(chosen)], chosen[n % len(chosen)] in repeated)
            for n, parameters in enumerate(tried)
            if chosen
        ]
    return [(parameters, v, v in repeated) for v in chosen for parameters in tried]


def _smaller_half(volumes: Volumes, chosen: Sequence[str]) -> list[str]:
    """Return the smaller half of ``chosen``, in its order: repeats of large ones cost hours."""
    sizes = sorted(volumes.mvoxels[volume] for volume in chosen)
    if not sizes:
        return []
    median = sizes[(len(sizes) - 1) // 2]
    return [volume for volume in chosen if volumes.mvoxels[volume] <= median]
