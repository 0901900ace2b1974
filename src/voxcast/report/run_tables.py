"""Tables of what was run, as text with units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import TARGETS, Configuration
from voxcast.report.formatting import (
    TITLES,
    amount,
    amounts,
    counted,
    heading,
    percent,
    percent_interval,
    percents,
)
from voxcast.report.inputs import allocation, by_configuration
from voxcast.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.allocation.pricing import Prices
    from voxcast.analysis.devices import DeviceComparison
    from voxcast.analysis.drift import Drift
    from voxcast.analysis.noise import Comparison, Noise
    from voxcast.analysis.wall_times import WallTimes
    from voxcast.laws.modality import Modality


def measured(runs: pd.DataFrame) -> Table:
    """Say what was run, by application, configuration and scale, and how it ended."""
    rows = []
    for part in by_configuration(runs):
        own = part.runs
        done = own[own["outcome"] == "completed"]
        rows.append(
            [
                part.label,
                _outcomes(own),
                _what(done),
                *(_spread(done, target) for target in TARGETS),
                format_seconds(float(done["cpu_s"].sum())),
            ]
        )
    head = ["Run", "Outcome", "Volumes of subjects", *map(heading, TITLES.values())]
    return Table("Smallest, median and largest of the completed runs", [*head, "In all"], rows)


def _what(runs: pd.DataFrame) -> str:
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


def noise_floor(noises: list[Noise]) -> Table:
    """Show how far repeats differ; ``noises`` by application, device, CPUs and scale."""
    rows = [
        [
            f"{one.app}: {allocation(Configuration(str(one.device), one.cpus or 0), one.scale)}",
            f"{one.cells} × {one.runs / one.cells:.2g}",
            *(percent_interval(one.cv[target]) for target in TARGETS),
        ]
        for one in noises
    ]
    head = ["Run", "Cells × times", *map(heading, TITLES.values())]
    caption = (
        "Coefficient of variation of repeats, with 95 % interval; of runs that nothing disturbed"
    )
    return Table(caption, head, rows)


def configurations(comparisons: list[Comparison]) -> Table:
    """Compare numbers of CPUs."""
    rows = []
    for one in comparisons:
        noise = "unknown" if one.noise_percent is None else percent(one.noise_percent)
        rows.append(
            [
                f"{one.label}, {one.device}: {one.cpus} against {one.base_cpus}",
                str(len(one.pairs)),
                _ratio(one.speedup.value, one.speedup.low, one.speedup.high),
                _ratio(one.cpu_ratio.value, one.cpu_ratio.low, one.cpu_ratio.high),
                percent(100 * one.speedup.value * one.base_cpus / one.cpus),
                noise,
            ]
        )
    caption = (
        "Geometric means over volumes, with 95 % interval over subjects; efficiency: times faster "
        "over times the CPUs"
    )
    head = ["CPUs", "Volumes", "Times faster", "Times the CPU time", "Efficiency", "Repeat noise"]
    return Table(caption, head, rows)


def _ratio(value: float, low: float, high: float) -> str:
    return f"{value:.2f} ({low:.2f} to {high:.2f})" if low == low else f"{value:.2f}"


def phases(summary: pd.DataFrame) -> Table:
    """Show medians of every phase."""
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
    head = ["Run", "Phase", "Runs", "Wall time", "Of all phases", "CPU time", "Peak memory"]
    return Table("Medians over completed runs", head, rows)


def devices(comparisons: list[DeviceComparison], prices: Prices) -> Table:
    """Compare CPU and GPU."""
    rows = []
    machines = len({one.hosts for one in comparisons}) > 1
    for one in comparisons:
        gain, whole = one.speedup, not one.phase
        interval = f" ({gain.low:.3g} to {gain.high:.3g})" if gain.bounded else " (no interval)"
        medians = [float(one.pairs[name].median()) for name in ("cpu_s", "gpu_s")]
        cells = [
            amounts("runtime_s", medians),
            percents(one.cv_percent),
            amounts("peak_rss_bytes", one.memory_bytes[: 1 + whole]),
            " · ".join(f"{1000 * value:.2g}" for value in one.usd),
        ]
        both = [_unbroken(cell) for cell in cells]
        label = f"{one.label}, {one.machines}" if machines else one.label
        rows.append([label, str(len(one.pairs)), f"{gain.value:.3g}×{interval}", *both])
    caption = (
        "CPU · GPU. Times faster: geometric mean over pairs of the same work, with its 95 % "
        "interval by bootstrap over subjects. Memory: median peak, and of the whole run that on "
        "the GPU. USD: of 1000 runs, "
        f"at {prices.usd_per_core_hour:g} $ a core-hour and {prices.usd_per_gpu_hour:g} $ a "
        "GPU-hour"
    )
    head = ["Run", "Pairs", "Times faster", "Median wall time", "CV of repeats", "Memory", "USD"]
    return Table(caption, head, rows)


def variations(groups: list[WallTimes]) -> Table:
    """Describe how wall time varies, group by group."""
    rows = []
    for one in groups:
        varied = one.varied
        rows.append(
            [
                one.label,
                counted(varied.n, one.of),
                _unbroken(amounts("runtime_s", [varied.mean, varied.sd]).replace("·", "±")),
                _unbroken(amounts("runtime_s", [at.value for at in varied.quantiles])),
                percent(100 * varied.cv),
                "unknown" if one.noise is None else percent(one.noise.value),
            ]
        )
    caption = "Wall time of each volume or setting; repeats count once, as their geometric mean"
    head = ["Run", "Of", "Mean ± SD", "5 · 50 · 95 % quantile", "CV", "CV of repeats"]
    return Table(caption, head, rows)


def laws(groups: list[WallTimes]) -> Table:
    """Say which laws are closest to the wall times of each group, and how many modes they have."""
    rows = []
    for one in groups:
        best, cells = one.varied.best_by_ks, ["", "", ""]
        if one.varied.fits:
            closest = one.varied.fits[0]
            honest = "unknown" if one.bootstrap_p is None else _p(one.bootstrap_p)
            cells = [f"{closest.ks:.3f}", _p(closest.ks_p), honest]
        tied = ", ".join(map(_words, one.varied.tied)) or "too few runs"
        named = _words(best or "too few runs")
        rows.append([one.label, named, *cells, tied, _modes(one.varied.modality)])
    caption = (
        "p: as if the law had not been fitted to these runs, which flatters it; bootstrap p: "
        "of this law fitted anew, small if even the closest one does not fit; that it was chosen "
        "as the closest still flatters it a little"
    )
    head = ["Run", "Closest law", "KS distance", "p", "Bootstrap p", "Best by AIC, and its ties"]
    return Table(caption, [*head, "Modes"], rows)


def _p(value: float) -> str:
    return "< 0.01" if value < 0.01 else f"{value:.2f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _modes(found: Modality) -> str:
    if not found.verdict.startswith("two"):
        return found.verdict
    parts = [percent(100 * group.weight) for group in found.groups]
    around = [format_seconds(group.median) for group in found.groups]
    groups = ", ".join(f"{part} near {at}" for part, at in zip(parts, around, strict=True))
    return f"{found.verdict} ({groups})"


def drift(found: Drift, names: Mapping[str, str]) -> Table:
    """Show the CPU time of every anchor by sitting; ``names`` are those of volumes, by id."""
    rows = []
    for sitting in found.sittings:
        row = [sitting]
        for one in found.anchors:
            if sitting not in one.cpu_s:
                row.append("")
            elif sitting == next(iter(one.cpu_s)):
                row.append(format_seconds(one.cpu_s[sitting]))
            else:
                row.append(f"{100 * one.change[sitting]:+.1f} %".replace("-", "−"))
        rows.append(row)
    head = ["Sitting"]
    for one in found.anchors:
        volume = names.get(one.volume_id, one.volume_id)
        head.append(", ".join([one.app, one.configuration.label, *([volume] if volume else [])]))
    caption = "CPU time of the anchors: in the first sitting, and how later ones differ from it"
    return Table(caption, head, rows)
