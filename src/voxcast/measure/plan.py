"""Which cells a campaign measures, and in which order.

A sweep runs some applications with some parameters on some of the volumes. The cells of all sweeps
are interleaved, so that a campaign cut short has measured the same share of each. Order comes from
hashes of the seed and the volume: a sweep over 40 volumes is part of one over 120, and another
volume in the image set leaves the order of its neighbours as it was.

Values of parameters are tried in every combination, or as a Latin hypercube; a parameter has a
list of values, or a range ``{low, high}``, drawn on a log scale with ``log``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import itertools
import math
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import app_version, scaled_parameters
from voxcast.errors import ConfigError, RunError
from voxcast.files import canonical_json, read_json, sha256_of, write_json
from voxcast.measure.host import HostFacts, host_class, host_facts
from voxcast.measure.trace import Conditions
from voxcast.quantities import format_bytes
from voxcast.records import ANCHOR_REPEAT, App, Cell, Configuration, Scale, as_fields, of_fields

if TYPE_CHECKING:
    import pandas as pd

LOG_DECADES = 100  # a range of an application this wide, high over low, is drawn on a log scale
RANGE_KEYS = {"low", "high", "log"}
MANY = 10**9
LENT_EXPECTED_S = 10.0  # of a run on a borrowed machine, before any is measured


@dataclass(frozen=True)
class Sweep:
    """Part of a campaign."""

    name: str
    apps: tuple[str, ...]  # of those chosen; empty for all
    parameters: dict[str, Any]
    # None is every combination of values; a number that many points of a Latin hypercube, over the
    # ranges the application states itself if `parameters` is empty, and each on one volume.
    sample: int | None
    scale: Scale
    volumes: int | None  # None for all
    volumes_offset: int  # this many are skipped first
    cpus: tuple[int, ...]  # a part of the device's; empty for all
    repeats: int  # runs of each, in all
    first_repeat: int  # their numbers start here: runs of another campaign are made again
    # How many volumes (points, for an application without an image) are run more than once; None
    # for all. They are drawn from the smaller half: repeats of large ones cost hours.
    repeat_volumes: int | None

    def wants(self, app: App, configuration: Configuration) -> bool:
        """Return whether ``app`` is to run in ``configuration``."""
        named = not self.apps or app.name in self.apps
        cpus = not self.cpus or configuration.cpus in self.cpus
        return named and cpus and configuration.device in app.devices


@dataclass(frozen=True)
class CampaignSettings:
    """The sweeps of a campaign, the folder of its runs, and the time it may take.

    Attributes
    ----------
    apps : mapping
        Applications by name.
    runs : Path
        Folder that gets one folder per run; created if missing.
    sweeps, configurations, seed : optional
        The source of the cells, see `make_plan`.
    anchors : int
        Each application is run on this many volumes at the start of every sitting.
    stop_after_s : float, optional
        No run is started that is not expected to end within this time.
    parallel : int
        Runs at a time, each on separate cores. Runs that need more cores follow afterwards.
    host : HostFacts, optional
        Facts of this machine; detected by default.
    """

    apps: Mapping[str, App]
    runs: Path
    sweeps: tuple[Sweep, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    seed: int = 1
    anchors: int = 0
    stop_after_s: float | None = None
    parallel: int = 1
    host: HostFacts | None = None


@dataclass(frozen=True)
class CampaignPlan:
    """The cells of a campaign and everything needed to run them.

    Attributes
    ----------
    cells : dict
        By key, in the order to run them.
    paths : dict
        The file of each volume, by volume id.
    expected_s : dict
        Expected seconds of a run by application and volume id; 1 where it is missing.
    local_runs : list of Cell
        Run at the start of every sitting that has anything to measure.
    recipes : mapping
        Recipes of generated volumes by volume id, for the records.
    notes : list of str
        Applications and configurations left out on this machine, and why.
    """

    cells: dict[str, Cell]
    paths: dict[str, Path]
    expected_s: dict[tuple[str, str], float] = field(default_factory=dict)
    local_runs: list[Cell] = field(default_factory=list)
    recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def make_plan(
    settings: CampaignSettings,
    catalogue: pd.DataFrame,
    recipes: Mapping[str, dict[str, Any]] | None = None,
) -> CampaignPlan:
    """Plan a campaign for this machine.

    Parameters
    ----------
    settings : CampaignSettings
        Sweeps, configurations and seed decide the cells.
    catalogue : DataFrame
        The catalogue of the image set.
    recipes : mapping, optional
        Recipes of generated volumes by volume id.

    Raises
    ------
    ConfigError
        If a sweep names a parameter that an application does not have.
    """
    facts = settings.host or host_facts()
    configurations, notes = fitting(settings.configurations, facts)
    apps, missing = with_programs(settings.apps)
    volumes = good_volumes(catalogue)
    drawn = draw_cells(settings.sweeps, apps, volumes, configurations, settings.seed)
    first = local_run_cells(settings.sweeps, apps, volumes, configurations, settings.anchors)
    cells, local_runs = completed(drawn, apps, facts), completed(first, apps, facts)
    volume_ids, paths = catalogue["volume_id"].astype(str), catalogue["path"].astype(str)
    return CampaignPlan(
        cells=cells,
        paths=dict(zip(volume_ids, map(Path, paths), strict=True)),
        expected_s=expected_times(apps, volumes),
        local_runs=[*local_runs.values()],
        recipes=recipes or {},
        notes=[*notes, *missing],
    )


def completed(cells: Iterable[Cell], apps: Mapping[str, App], facts: HostFacts) -> dict[str, Cell]:
    """Return cells by key, with the versions of their applications and the machine's hardware."""
    cells = list(cells)
    versions = {
        (name, configuration): app_version(apps[name], configuration)
        for name, configuration in {(cell.app, cell.configuration) for cell in cells}
    }
    here = (
        dataclasses.replace(
            cell,
            app_version=versions[cell.app, cell.configuration],
            host_class=host_class(facts),
        )
        for cell in cells
    )
    return {cell.key: cell for cell in here}


def lend_cells(
    path: Path,
    cells: Sequence[Cell],
    apps: Mapping[str, App],
    volumes: Mapping[str, Path],
    recipes: Mapping[str, Any] | None = None,
) -> None:
    """Write ``cells`` for another machine to ``path``, and their volumes beside it.

    Their host class and application version are completed on that machine.
    """
    files = {}
    for volume_id in dict.fromkeys(cell.volume_id for cell in cells if cell.volume_id):
        source = volumes[volume_id]
        target = path.parent / "volumes" / volume_id / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        files[volume_id] = target.relative_to(path.parent).as_posix()
    nvml = importlib.util.find_spec("pynvml")
    if nvml is not None and nvml.origin is not None:  # measures GPUs; it need not be installed
        shutil.copyfile(nvml.origin, path.parent / "pynvml.py")
    used = {cell.app: as_fields(apps[cell.app]) for cell in cells}
    content = {"cells": list(map(as_fields, cells)), "apps": used, "volumes": files}
    of_volumes = {volume_id: (recipes or {}).get(volume_id) for volume_id in files}
    write_json(path, {**content, "recipes": of_volumes})


def read_cells(path: Path, facts: HostFacts) -> tuple[CampaignPlan, dict[str, App]]:
    """Return the plan for this machine, and the applications, that `lend_cells` wrote.

    Raises
    ------
    RunError
        If the file is missing or damaged, or an application lacks a package here.
    """
    try:
        content = read_json(path)
        apps = {name: of_fields(App, fields) for name, fields in content["apps"].items()}
        planned = [of_fields(Cell, fields) for fields in content["cells"]]
        volumes = {v: path.parent / name for v, name in content["volumes"].items()}
        recipes = {v: recipe for v, recipe in content["recipes"].items() if recipe}
    except FileNotFoundError as error:
        raise RunError("no such file", error.filename, "prepare the cells first") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"is broken ({error!r})", path, "prepare it again") from None
    fit, notes = fitting({cell.configuration: None for cell in planned}, facts)
    cells = completed((cell for cell in planned if cell.configuration in fit), apps, facts)
    expected = {(cell.app, cell.volume_id): LENT_EXPECTED_S for cell in cells.values()}
    return CampaignPlan(cells, volumes, expected, [], recipes, notes), apps


def fitting(
    configurations: Iterable[Configuration], facts: HostFacts
) -> tuple[list[Configuration], list[str]]:
    """Return the configurations this machine can run, and why it cannot run the rest."""
    fit, notes, gpus = [], [], len(facts.gpu_models)
    for c in configurations:
        lacks = {
            f"there is {gpus or 'no'} GPU here": c.gpus > gpus,
            f"there are {facts.cores} CPUs here": c.cpus > facts.cores,
            f"there are {format_bytes(facts.memory_bytes)} of memory here":
                (c.mem_limit_bytes or 0) > facts.memory_bytes,
        }  # fmt: skip
        if any(lacks.values()):
            reason = next(reason for reason, is_lacking in lacks.items() if is_lacking)
            notes.append(f"{c.label}: left out, {reason}")
        else:
            fit.append(c)
    return fit, notes


def with_programs(apps: Mapping[str, App]) -> tuple[dict[str, App], list[str]]:
    """Return the applications whose programs this machine has, and why the rest cannot run."""
    missing = {
        name: program
        for name, app in apps.items()
        for program in reversed(app.programs)
        if shutil.which(program) is None
    }
    notes = [f"{name}: left out, {program} is not on PATH" for name, program in missing.items()]
    return {name: app for name, app in apps.items() if name not in missing}, notes


def good_volumes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``subject`` and ``mvoxels`` of the good volumes of a catalogue, by volume id."""
    good = rows[rows["problem"].isna()].drop_duplicates("volume_id").astype({"subject": str})
    voxels = good[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1)
    good = good.assign(volume_id=good["volume_id"].astype(str), mvoxels=voxels / 1e6)
    return good.set_index("volume_id")[["subject", "mvoxels"]]


def expected_times(apps: Mapping[str, App], volumes: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return expected seconds by application and volume, before anything has been learned."""
    sizes = {"": 0.0} | {str(volume): size for volume, size in volumes["mvoxels"].items()}
    return {
        (name, volume): app.expected_startup_s + app.expected_s_per_mvoxel * size
        for name, app in apps.items()
        for volume, size in sizes.items()
    }


def draw_cells(
    sweeps: Sequence[Sweep],
    apps: Mapping[str, App],
    volumes: pd.DataFrame,
    configurations: Sequence[Configuration],
    seed: int,
) -> list[Cell]:
    """Return the cells of a campaign in the order to run them, before they are `completed`.

    Every stretch holds the same share of every sweep and application. `configurations` fit this
    machine, see `fitting`.
    """
    placed: dict[str, tuple[float, str, Cell]] = {}
    for sweep, app in itertools.product(sweeps, apps.values()):
        cells = {c.key: c for c in sweep_cells(sweep, app, volumes, configurations, seed)}
        new = [key for key in cells if key not in placed]  # others belong to an earlier sweep
        for rank, key in enumerate(new):
            placed[key] = (rank + 0.5) / len(new), sha256_of([seed, key]), cells[key]
    return [cell for _, _, cell in sorted(placed.values(), key=lambda entry: entry[:2])]


def local_run_cells(
    sweeps: Sequence[Sweep],
    apps: Mapping[str, App],
    volumes: pd.DataFrame,
    configurations: Sequence[Configuration],
    count: int,
) -> list[Cell]:
    """Return the first cells of every sitting, whose times show the drift of the machine.

    Each application with its defaults, on the fewest CPUs of each of its devices, on ``count``
    fixed volumes from the smallest tenth upwards, or once without an image. The repeat is
    `ANCHOR_REPEAT`, to which a sitting adds its number.
    """
    by_size = volumes.sort_values(["mvoxels", "volume_id"])["subject"]
    small = [*by_size.iloc[len(by_size) // 10 :][:count].items()]
    cells = []
    for app in apps.values():
        wanted = [c for c in configurations if any(sweep.wants(app, c) for sweep in sweeps)]
        fewest = {c.device: c for c in sorted(wanted, key=lambda c: -c.cpus)}
        parameters = scaled_parameters(app, "full_scale", {})
        cells += [
            Cell(app.name, "", parameters, str(volume), subject, configuration, "full_scale",
                 ANCHOR_REPEAT, "")
            for configuration in fewest.values()
            for volume, subject in (small if app.input == "volume" else [("", "")][:count])
        ]  # fmt: skip
    return cells


def sweep_cells(
    sweep: Sweep,
    app: App,
    volumes: pd.DataFrame,
    configurations: Sequence[Configuration],
    seed: int,
) -> list[Cell]:
    """Return the cells of ``app`` in ``sweep``, shuffled by volume and repeat."""
    wanted = [c for c in configurations if sweep.wants(app, c)]
    if not wanted:
        return []
    tried, chosen, most = points(sweep, app, seed), [""], sweep.repeat_volumes
    if app.input == "volume":
        order = sorted(volumes.index, key=lambda name: sha256_of([seed, "choose", name]))
        chosen = order[sweep.volumes_offset :][: sweep.volumes]
    pairs = [(parameters, volume) for volume in chosen for parameters in tried]
    if sweep.sample is not None:
        pairs = list(zip(tried, itertools.cycle(chosen), strict=False))
    again = set(range(len(pairs))[:most])
    if app.input == "volume" and most is not None:
        mvoxels = volumes["mvoxels"].loc[chosen]
        small = mvoxels.index[mvoxels <= mvoxels.quantile(interpolation="lower")][:most]
        again = {n for n, (_, volume) in enumerate(pairs) if volume in small}
    ordered: list[tuple[str, str, Cell]] = []
    for n, (parameters, volume) in enumerate(pairs):
        count = sweep.repeats if n in again else 1
        for repeat in range(sweep.first_repeat, sweep.first_repeat + count):
            turn = sha256_of([seed, volume or canonical_json(parameters), repeat])
            subject = volumes["subject"].get(volume, "")
            ordered += [
                (turn, sha256_of([seed, turn, c.label]),
                 Cell(app.name, "", parameters, volume, subject, c, sweep.scale, repeat, ""))
                for c in wanted
            ]  # fmt: skip
    return [cell for _, _, cell in sorted(ordered, key=lambda entry: entry[:2])]


def points(sweep: Sweep, app: App, seed: int) -> list[dict[str, Any]]:
    """Return all parameters of each point of ``sweep`` for ``app``.

    The points depend on the seed, the application and the swept values, not on the scale: a
    scaled-down sweep has the points of the full one, scaled down.
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
    if len(choice) != 2 or not _numbers(*choice):
        return list(choice)
    low, high = choice
    return {"low": low, "high": high, "log": low > 0 and high / low >= LOG_DECADES}


def product(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the lists in ``values``; without parameters, one empty one.

    Raises
    ------
    ConfigError
        If a value is a range, which has no full product.

    Examples
    --------
    >>> product({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    for name, choice in values.items():
        if not _listed(name, choice):
            raise ConfigError("is a range, which has no full product", name, "set sample")
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def latin_hypercube(values: Mapping[str, Any], count: int, seed: object) -> list[dict[str, Any]]:
    """Return ``count`` points, in which each parameter has one value in each of ``count`` strata.

    Parameters
    ----------
    values : mapping
        A range is cut into strata of equal width; the values of a list come equally often.
    seed : object
        Any value that JSON can hold. The strata of each parameter are drawn independently.

    Examples
    --------
    >>> points = latin_hypercube({"a": {"low": 0.0, "high": 4.0}}, 4, seed=1)
    >>> sorted(int(point["a"]) for point in points)
    [0, 1, 2, 3]
    """
    columns = {}
    for name, choice in values.items():
        # Not a library's generator: the points identify recorded runs and must never change.
        digest = hashlib.sha256(canonical_json([seed, name, count]).encode()).digest()
        drawn = random.Random(digest)  # noqa: S311
        strata = list(range(count))
        drawn.shuffle(strata)
        # The middle of each for a list, so that values come equally often.
        listed = _listed(name, choice)
        shares = [(s + (0.5 if listed else drawn.random())) / count for s in strata]
        columns[name] = [_value(name, choice, share) for share in shares]
    return [{name: column[n] for name, column in columns.items()} for n in range(count)]


def _value(name: str, choice: Any, share: float) -> Any:
    if _listed(name, choice):
        return choice[int(share * len(choice))]
    low, high = choice["low"], choice["high"]
    if choice.get("log", False):
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    if isinstance(low, int) and isinstance(high, int):
        # Every integer is a stratum, the highest included.
        rounded = round(value) if choice.get("log", False) else low + int(share * (high - low + 1))
        return min(max(rounded, low), high)
    return float(f"{value:.6g}")  # short enough to read and to type


def _listed(name: str, choice: Any) -> bool:
    """Return whether it is a list and not a range; anything else is refused."""
    if isinstance(choice, list | tuple) and choice:
        return True
    if isinstance(choice, dict) and {"low", "high"} <= set(choice) <= RANGE_KEYS:
        low, high = choice["low"], choice["high"]
        if _numbers(low, high) and low <= high and (low > 0 or not choice.get("log", False)):
            return False
    then = "low <= high, above 0 with log"
    raise ConfigError(f"needs values or a range {{low, high, log}}, not {choice!r}", name, then)


def _numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
