"""Labels of allocations, groups of runs and comparisons, for tables and figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from voxcast.analysis.model_comparison import CONSTANT
from voxcast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.analysis.cpu_scaling import CpuComparison
    from voxcast.analysis.devices import DeviceComparison
    from voxcast.analysis.run_groups import RunGroup
    from voxcast.analysis.wall_times import WallTimes
    from voxcast.records import Configuration

SCALED_DOWN = "scaled_down"
BASELINE_TITLES = {
    CONSTANT: "constant baseline",
    "voxels": "voxels baseline",
    "law": "law of voxels",
}


def baseline_title(family: str) -> str:
    """Describe a baseline; its family may have the name of a statistic.

    Examples
    --------
    >>> baseline_title("median")
    'constant baseline'
    """
    return BASELINE_TITLES[family]


def allocation_label(configuration: Configuration, scale: str | None) -> str:
    """Write an allocation, and the scale unless it is the full one.

    Examples
    --------
    >>> from voxcast.records import Configuration
    >>> allocation_label(Configuration("cpu", 1), "scaled_down")
    'cpu, 1 CPU, scaled down'
    """
    return f"{configuration.label}{', scaled down' if scale == SCALED_DOWN else ''}"


def run_group_label(group: RunGroup) -> str:
    """Write application, allocation and scale."""
    return f"{group.app}: {allocation_label(group.configuration, group.scale)}"


def wall_times_allocation(group: WallTimes) -> str:
    """Write allocation, scale and machine."""
    machine = f", {group.machine}" if group.machine else ""
    return f"{allocation_label(group.configuration, group.scale)}{machine}"


def wall_times_label(group: WallTimes) -> str:
    """Write application, allocation, scale and machine."""
    return f"{group.app}: {wall_times_allocation(group)}"


def cpu_label(comparison: CpuComparison) -> str:
    """Write the application, and the scale unless it is the full one."""
    return comparison.app + ("" if comparison.scale == "full_scale" else ", scaled down")


def device_label(comparison: DeviceComparison) -> str:
    """Write application, allocations, and the phase or the whole run."""
    subject = f"phase {comparison.phase}" if comparison.phase else "whole run"
    return f"{comparison.app}, {device_allocations(comparison)}: {subject}"


def device_allocations(comparison: DeviceComparison) -> str:
    """Write scale and allocations of both sides; a single GPU with as many CPUs is implied."""
    text = counted(comparison.cpus, "CPU")
    if (comparison.gpu_cpus, comparison.gpus) != (comparison.cpus, 1):
        gpu_cpus = counted(comparison.gpu_cpus, "CPU")
        text += f" against {counted(comparison.gpus, 'GPU')} with {gpu_cpus}"
    return f"scaled down, {text}" if comparison.scale == SCALED_DOWN else text


def device_machines(comparison: DeviceComparison) -> str:
    """Write the host classes of both sides, once if they are equal."""
    cpu, gpu = comparison.hosts
    return cpu if cpu == gpu else f"{cpu} against {gpu}"


def smallest_gains(
    comparison: DeviceComparison, count: int, names: Mapping[str, str] | None = None
) -> list[str]:
    """List the pieces of work with the smallest speed-up on the GPU, and their speed-up.

    A piece of work is identified by its volume, with its name in ``names``, or by the parameters
    in which the pieces differ.
    """
    settings = [json.loads(text) for text in comparison.pairs["parameters_json"]]
    varying = [
        name
        for name in sorted({name for parameters in settings for name in parameters})
        if len({json.dumps(parameters.get(name)) for parameters in settings}) > 1
    ]
    rows = comparison.pairs.head(count).to_dict("records")
    lines = []
    for row, parameters in zip(rows, settings, strict=False):
        volume = str(row["volume_id"])
        description = [(names or {}).get(volume, volume)] * bool(volume)
        description += [f"{name} {parameters[name]}" for name in varying if name in parameters]
        lines.append(f"{', '.join(description) or 'default parameters'}: {row['speedup']:.3g}×")
    return lines
