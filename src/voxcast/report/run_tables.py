"""Tables of measured runs, as text with units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.analysis.run_groups import by_configuration
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import TARGETS, Configuration
from voxcast.report.tables import Table
from voxcast.report.wording import (
    TITLES,
    allocation_label,
    amount,
    amounts,
    cpu_label,
    device_label,
    device_machines,
    heading,
    percent,
    percent_interval,
    percents,
    run_group_label,
    wall_times_label,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.allocation.site import Prices
    from voxcast.analysis.devices import CpuComparison, DeviceComparison
    from voxcast.analysis.drift import Drift
    from voxcast.analysis.noise import RepeatNoise
    from voxcast.analysis.wall_times import WallTimes
    from voxcast.laws.fits import Modality
    from voxcast.laws.intervals import Interval


def measured(runs: pd.DataFrame) -> Table:
    """List outcomes and measured ranges by application, configuration and scale."""
    rows = []
    for group in by_configuration(runs):
        completed = group.runs[group.runs["outcome"] == "completed"]
        rows.append(
            [
                run_group_label(group),
                _outcomes(group.runs),
                _inputs(completed),
                *(_spread(completed, target) for target in TARGETS),
                format_seconds(float(completed["cpu_s"].sum())),
            ]
        )
    head = ["Run", "Outcome", "Volumes of subjects", *map(heading, TITLES.values())]
    caption = "Smallest, median and largest value of the completed runs"
    return Table(caption, [*head, "Total CPU time"], rows)


def _inputs(runs: pd.DataFrame) -> str:
    with_image = runs[runs["volume_id"] != ""]
    if len(with_image) or runs.empty:
        return f"{with_image['volume_id'].nunique()} of {with_image['subject'].nunique()}"
    return f"no image, {counted(runs['parameters_json'].nunique(), 'setting')}"


def _outcomes(runs: pd.DataFrame) -> str:
    counts = runs["outcome"].value_counts(sort=False).sort_index()
    return ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in counts.items())


def _spread(runs: pd.DataFrame, target: str) -> str:
    if runs.empty:
        return "none"
    values = runs[target].dropna().astype(float)
    if values.empty:
        return "unknown"
    return _unbroken(amounts(target, [values.min(), values.median(), values.max()]))


def _unbroken(text: str) -> str:
    return text.replace(" ", "\u00a0")


def noise_floor(noise: list[RepeatNoise], normalised: list[RepeatNoise]) -> Table:
    """List the noise of repeats by application, device, CPUs and scale.

    ``normalised`` is the noise of the same groups at the usual speed of the machine, or empty.
    """
    rows = []
    for number, group in enumerate(noise):
        configuration = Configuration(str(group.device), group.cpus or 0)
        rows.append(
            [
                f"{group.app}: {allocation_label(configuration, group.scale)}",
                f"{group.cells} × {group.runs / group.cells:.2g}",
                *(percent_interval(group.cv[target]) for target in TARGETS),
                *(percent_interval(group.cv["cpu_s"]) for group in normalised[number:][:1]),
            ]
        )
    head = ["Run", "Cells × repeats", *map(heading, TITLES.values())]
    caption = (
        "Coefficient of variation of undisturbed repeats of the same run. Its 95 % interval is "
        "that of a variance (chi-squared, over logarithms), unlike the intervals of means on this "
        "page"
    )
    if normalised:
        head.append("CPU time at usual speed")
        caption += (
            ". The last column is what is left once the momentary speed of the machine is taken "
            "out, which a metronome beside each run tells, or the constant work at the start of "
            "the runs before and after it"
        )
    return Table(caption, head, rows)


def configurations(comparisons: list[CpuComparison]) -> Table:
    """Compare numbers of CPUs."""
    rows = []
    for comparison in comparisons:
        cpus, base, noise = comparison.cpus, comparison.base_cpus, comparison.noise_percent
        rows.append(
            [
                f"{cpu_label(comparison)}, {comparison.device}: {cpus} against {base}",
                str(len(comparison.pairs)),
                _ratio(comparison.speedup),
                _ratio(comparison.cpu_ratio),
                percent(100 * comparison.speedup.value * base / cpus),
                "unknown" if noise is None else percent(noise),
            ]
        )
    caption = (
        "Geometric means over volumes, with 95 % interval over subjects (Student's t of "
        "logarithms); efficiency: speed-up divided by the ratio of CPUs"
    )
    head = ["CPUs", "Volumes", "Speed-up", "CPU time ratio", "Efficiency", "CV of repeats"]
    return Table(caption, head, rows)


def _ratio(ratio: Interval) -> str:
    bounds = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.bounded else ""
    return f"{ratio.value:.2f}{bounds}"


def phases(summary: pd.DataFrame) -> Table:
    """List medians of every phase."""
    rows = [
        [
            f"{row['app']}: {row['cpus']} CPU{'s' if row['cpus'] != 1 else ''}",
            str(row["phase"]),
            str(row["runs"]),
            amount("cpu_s", float(row["duration_s"])),
            percent(100 * float(row["share"])),
            amount("cpu_s", float(row["cpu_s"])),
            format_bytes(row["peak_rss_bytes"]) if row["peak_rss_bytes"] > 0 else "unknown",
        ]
        for row in summary.to_dict("records")
    ]
    head = ["Run", "Phase", "Runs", "Wall time", "Share of phases", "CPU time", "Peak memory"]
    return Table("Medians over completed runs", head, rows)


def devices(comparisons: list[DeviceComparison], prices: Prices) -> Table:
    """Compare CPU and GPU."""
    rows = []
    several_machines = len({comparison.hosts for comparison in comparisons}) > 1
    for comparison in comparisons:
        gain, is_whole_run = comparison.speedup, not comparison.phase
        interval = f" ({gain.low:.3g} to {gain.high:.3g})" if gain.bounded else " (no interval)"
        medians = [float(comparison.pairs[name].median()) for name in ("cpu_s", "gpu_s")]
        cells = [
            amounts("runtime_s", medians),
            percents(comparison.cv_percent),
            amounts("peak_rss_bytes", comparison.memory_bytes[: 1 + is_whole_run]),
            " · ".join(f"{1000 * value:.2g}" for value in comparison.usd),
        ]
        label = device_label(comparison)
        if several_machines:
            label += f", {device_machines(comparison)}"
        speedup = f"{gain.value:.3g}×{interval}"
        rows.append([label, str(len(comparison.pairs)), speedup, *map(_unbroken, cells)])
    caption = (
        "CPU · GPU. Speed-up: geometric mean over pairs of the same work, with 95 % interval over "
        "subjects (Student's t of logarithms). Memory: median peak of the CPU run and, for whole "
        "runs, median peak GPU memory. USD: cost of 1000 runs at "
        f"{prices.usd_per_core_hour:g} USD per core-hour and {prices.usd_per_gpu_hour:g} USD per "
        "GPU-hour"
    )
    head = ["Run", "Pairs", "Speed-up", "Median wall time", "CV of repeats", "Memory", "USD"]
    return Table(caption, head, rows)


def variations(groups: list[WallTimes]) -> Table:
    """Describe how wall time varies in each group."""
    rows = []
    for group in groups:
        varied = group.varied
        rows.append(
            [
                wall_times_label(group),
                counted(varied.n, group.unit),
                _unbroken(amounts("runtime_s", [varied.mean, varied.sd]).replace("·", "±")),
                _unbroken(amounts("runtime_s", [interval.value for interval in varied.quantiles])),
                percent(100 * varied.cv),
                "unknown" if group.noise is None else percent(group.noise.value),
            ]
        )
    caption = "Wall time of each volume or setting; repeats count once, as their geometric mean"
    head = ["Run", "Values", "Mean ± SD", "5 · 50 · 95 % quantile", "CV", "CV of repeats"]
    return Table(caption, head, rows)


def laws(groups: list[WallTimes]) -> Table:
    """List the distributions closest to the wall times of each group, and the modes."""
    rows = []
    for group in groups:
        best, cells = group.varied.best_by_ks, ["", "", ""]
        if group.varied.fits:
            closest = group.varied.fits[0]
            bootstrap_p = "unknown" if group.bootstrap_p is None else _p(group.bootstrap_p)
            cells = [f"{closest.ks:.3f}", _p(closest.ks_p), bootstrap_p]
        tied = ", ".join(map(_words, group.varied.tied)) or "too few runs"
        name = _words(best or "too few runs")
        modes = _modes(group.varied.modality)
        rows.append([wall_times_label(group), name, *cells, tied, modes])
    caption = (
        "p: Kolmogorov-Smirnov test that ignores that the distribution was fitted to these "
        "values, so p is too large. Bootstrap p: the distribution is refitted to every sample; a "
        "small value means that even the closest distribution does not fit. It is still slightly "
        "too large, since the closest distribution was selected on the same values"
    )
    head = ["Run", "Closest distribution", "KS distance", "p", "Bootstrap p", "Best by AIC, ties"]
    return Table(caption, [*head, "Modes"], rows)


def _p(value: float) -> str:
    return "< 0.01" if value < 0.01 else f"{value:.2f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _modes(modality: Modality) -> str:
    if not modality.groups:
        return modality.verdict
    shares = [percent(100 * group.weight) for group in modality.groups]
    medians = [format_seconds(group.median) for group in modality.groups]
    groups = ", ".join(
        f"{share} near {center}" for share, center in zip(shares, medians, strict=True)
    )
    return f"{modality.verdict} ({groups})"


def anchor_changes(drift: Drift, names: Mapping[str, str]) -> Table:
    """List the CPU time of every anchor by sitting; ``names`` are file names by volume id."""
    rows = []
    for sitting in drift.sittings:
        row = [sitting]
        for anchor in drift.anchors:
            if sitting not in anchor.cpu_s:
                row.append("")
            elif sitting == next(iter(anchor.cpu_s)):
                row.append(format_seconds(anchor.cpu_s[sitting]))
            else:
                row.append(f"{100 * anchor.change[sitting]:+.1f} %".replace("-", "−"))
        rows.append(row)
    head = ["Sitting"]
    for anchor in drift.anchors:
        volume = names.get(anchor.volume_id, anchor.volume_id)
        head.append(
            ", ".join([anchor.app, anchor.configuration.label, *([volume] if volume else [])])
        )
    caption = "CPU time of the anchors in the first sitting, and its change in later sittings"
    return Table(caption, head, rows)
