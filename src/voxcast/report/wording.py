"""Words of the report: numbers with units and intervals, labels, and comparisons in words."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from voxcast.analysis.model_comparison import CONSTANT
from voxcast.quantities import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.analysis.devices import CpuComparison, DeviceComparison
    from voxcast.analysis.run_groups import RunGroup
    from voxcast.laws.intervals import Interval
    from voxcast.records import Configuration


TITLES = {"cpu_s": "CPU time", "runtime_s": "wall time", "peak_rss_bytes": "peak memory"}


def percent(value: float) -> str:
    """Write a percentage with two significant digits.

    Examples
    --------
    >>> percent(4.0), percent(0.456), percent(123.4), percent(float("nan"))
    ('4.0 %', '0.46 %', '123 %', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    if abs(value) >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if abs(value) >= 0.95 else f"{value:.2g} %"


def percent_interval(interval: Interval) -> str:
    """Write a percentage with its interval, if it has one; the lower end is at least 0.

    Examples
    --------
    >>> from voxcast.laws.intervals import Interval
    >>> percent_interval(Interval(9.8, -1.0, 21.0, 3))
    '9.8 % (0 to 21 %)'
    >>> percent_interval(Interval(9.8, -math.inf, math.inf, 1))
    '9.8 %'
    """
    if not interval.bounded:
        return percent(interval.value)
    low = percent(max(interval.low, 0.0)).removesuffix(" %")
    return f"{percent(interval.value)} ({low} to {percent(interval.high)})"


def amount(target: str, value: float) -> str:
    """Write a value of ``target`` with its unit.

    Examples
    --------
    >>> amount("cpu_s", 95), amount("peak_rss_bytes", 1.2e9)
    ('1 min 35 s', '1.20 GB')
    """
    if not math.isfinite(value):
        return "unknown"
    return format_bytes(value) if target.endswith("_bytes") else format_seconds(value)


def heading(text: str) -> str:
    """Capitalise the first letter of a text only.

    Examples
    --------
    >>> heading("wall time"), heading("CPU time")
    ('Wall time', 'CPU time')
    """
    return text[:1].upper() + text[1:]


SCALED_DOWN = "scaled_down"
BASELINE_TITLES = {
    CONSTANT: "constant baseline",
    "voxels": "voxels baseline",
    "law": "additive-law baseline",
}


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


def cpu_verdict(comparison: CpuComparison) -> str:
    """Write the result of a comparison of numbers of CPUs, without a full stop."""
    cpus, base, speedup = comparison.cpus, comparison.base_cpus, comparison.speedup
    ratio = speedup.value
    unit = counted(speedup.subjects, "subject" if comparison.has_images else "setting")
    against = f"{counted(cpus, 'CPU')} against {base}"
    if not speedup.bounded:
        return f"{against}: {ratio:.2f}× the speed on {unit}, too few for an interval"
    bounds = f"{speedup.low:.2f} to {speedup.high:.2f}"
    if comparison.differs:
        return f"{against}: {ratio:.2f}× the speed ({bounds}; {unit})"
    noise = "no significant difference, and the repeat noise was not measured"
    if comparison.noise_percent is not None:
        noise = f"no difference above the repeat noise of {percent(comparison.noise_percent)}"
    return f"{against}: {noise} ({ratio:.2f}× the speed, {bounds}; {unit})"


def missing_devices(devices: Sequence[str]) -> str | None:
    """Write which devices have no completed run, as one sentence; None if all have runs."""
    if not devices:
        return None
    if len(devices) > 1:
        return "no completed measured run is on record, so there is nothing to compare"
    return f"no run on a {devices[0].upper()} is on record, so there is nothing to compare"
