"""Words of the report: numbers with units and intervals, labels, and comparisons in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from voxcast.quantities import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.analysis.devices import CpuComparison, DeviceComparison
    from voxcast.analysis.run_groups import RunGroup
    from voxcast.laws.intervals import Interval
    from voxcast.records import Configuration


TITLES = {"cpu_s": "CPU time", "runtime_s": "wall time", "peak_rss_bytes": "peak memory"}
CONSTANT = "median"  # the baseline that predicts the same for every image
BASELINE_TITLES = {
    CONSTANT: "constant baseline",
    "voxels": "voxels baseline",
    "law": "additive-law baseline",
}


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


def allocation_label(configuration: Configuration, scale: str | None) -> str:
    """Write an allocation, and the scale unless it is the full one.

    Examples
    --------
    >>> from voxcast.records import Configuration
    >>> allocation_label(Configuration("cpu", 1), "scaled_down")
    'cpu, 1 CPU, scaled down'
    """
    return configuration.label + _scale(scale)


def _scale(scale: str | None) -> str:
    return ", scaled down" if scale == "scaled_down" else ""


def run_group_label(group: RunGroup) -> str:
    """Write application, allocation and scale."""
    return f"{group.app}: {allocation_label(group.configuration, group.scale)}"


def cpu_label(comparison: CpuComparison) -> str:
    """Write the application, and the scale unless it is the full one."""
    return comparison.app + _scale(comparison.scale)


def device_label(comparison: DeviceComparison) -> str:
    """Write application, allocations of both sides, and the phase or the whole run.

    A single GPU with as many CPUs is implied.
    """
    text = counted(comparison.cpus, "CPU")
    if (comparison.gpu_cpus, comparison.gpus) != (comparison.cpus, 1):
        gpu_cpus = counted(comparison.gpu_cpus, "CPU")
        text += f" against {counted(comparison.gpus, 'GPU')} with {gpu_cpus}"
    subject = f"phase {comparison.phase}" if comparison.phase else "whole run"
    return f"{comparison.app}{_scale(comparison.scale)}, {text}: {subject}"


def cpu_verdict(comparison: CpuComparison) -> str:
    """Write the result of a comparison of numbers of CPUs, without a full stop."""
    speedup = comparison.speedup
    unit = counted(speedup.subjects, "subject" if comparison.has_images else "setting")
    against = f"{counted(comparison.cpus, 'CPU')} against {comparison.base_cpus}"
    text = f"{against}: {speedup.value:.2f}× the speed"
    if not speedup.bounded:
        return f"{text} on {unit}, too few for an interval"
    text += f" ({speedup.low:.2f} to {speedup.high:.2f}; {unit})"
    if comparison.differs:
        return text
    if comparison.noise_percent is None:
        return f"{text}, no clear difference; the repeat noise is unknown"
    return f"{text}, no difference beyond the repeat noise of {percent(comparison.noise_percent)}"


def missing_devices(runs: pd.DataFrame) -> str | None:
    """Write which of CPU and GPU have no completed run; None if both have."""
    gpus = runs.loc[runs["outcome"] == "completed", "gpus"]
    has_runs = {"CPU": (gpus == 0).any(), "GPU": (gpus > 0).any()}
    missing = " or a ".join(name for name, has_some in has_runs.items() if not has_some)
    sentence = f"no run on a {missing} is on record, so there is nothing to compare"
    return sentence if missing else None
