"""Results of comparisons as sentences, for the page, the summary and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.analysis.drift import largest_change_by_noise
from voxcast.quantities import counted
from voxcast.report.wording import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.analysis.devices import CpuComparison
    from voxcast.analysis.drift import Drift


def cpu_verdict(comparison: CpuComparison) -> str:
    """Write the result of a comparison of numbers of CPUs, without a full stop."""
    cpus, base, speedup = comparison.cpus, comparison.base_cpus, comparison.speedup
    ratio = speedup.value
    unit = counted(speedup.subjects, "subject" if comparison.has_images else "setting")
    if not speedup.bounded:
        return (
            f"{counted(cpus, 'CPU')} against {base}: {ratio:.2f}× the speed on {unit}, "
            "too few for an interval"
        )
    bounds = f"{speedup.low:.2f} to {speedup.high:.2f}"
    if comparison.differs and ratio > 1:
        return f"{counted(cpus, 'CPU')} are {ratio:.2f}× faster than {base} ({bounds}; {unit})"
    if comparison.differs:
        bounds = f"{1 / speedup.high:.2f} to {1 / speedup.low:.2f}"
        return f"{counted(cpus, 'CPU')} are {1 / ratio:.2f}× slower than {base} ({bounds}; {unit})"
    if comparison.noise_percent is None:
        noise = "no significant difference, and the repeat noise was not measured"
    else:
        noise = f"no difference above the repeat noise of {percent(comparison.noise_percent)}"
    against = f"{counted(cpus, 'CPU')} against {base}"
    return f"{against}: {noise} ({ratio:.2f}× the speed, {bounds}; {unit})"


def missing_devices(devices: Sequence[str]) -> str | None:
    """Write which devices have no completed run, as one sentence; None if all have runs."""
    if not devices:
        return None
    if len(devices) > 1:
        return "no completed measured run is on record, so there is nothing to compare"
    return f"no run on a {devices[0].upper()} is on record, so there is nothing to compare"


def drift_sentence(drift: Drift, noise_percent: float | None) -> str:
    """Write the largest change since the first sitting, compared with that expected from noise.

    Parameters
    ----------
    drift : Drift
        The changes of all anchors.
    noise_percent : float or None
        CV of CPU time of repeats of the anchor that changed most; None if nothing was repeated.
    """
    anchor, change = drift.largest
    size, direction = 100 * abs(change), "up" if change > 0 else "down"
    text = (
        f"The largest of {counted(drift.changes, 'change')} in CPU time since the first sitting "
        f"is {percent(size)} ({anchor.app}, {direction})"
    )
    if noise_percent is None:
        return (
            f"{text}. No run was repeated within a sitting, so it cannot be compared with noise."
        )
    bound = 100 * largest_change_by_noise(noise_percent, drift.changes)
    verdict = "larger than" if size > bound else "within"
    return (
        f"{text}. It is {verdict} what noise alone explains: the repeats of {anchor.app} differ "
        f"by {percent(noise_percent)}, so the largest of as many differences between single runs "
        f"stays below {percent(bound)} with 95 % probability."
    )
