"""Tables of models, predictions and measured runs, as text with units; the template escapes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.analysis.model_comparison import BASELINES, CONSTANT, HEADER_ONLY, mean_error
from voxcast.analysis.run_groups import by_configuration
from voxcast.laws.intervals import Interval
from voxcast.quantities import counted, format_seconds
from voxcast.records import TARGETS, Configuration
from voxcast.report.wording import (
    TITLES,
    allocation_label,
    amount,
    cpu_label,
    device_label,
    device_machines,
    heading,
    percent,
    percent_interval,
    run_group_label,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from voxcast.allocation.site import Prices
    from voxcast.analysis.devices import CpuComparison, DeviceComparison
    from voxcast.analysis.model_comparison import ModelComparison
    from voxcast.analysis.noise import RepeatNoise
    from voxcast.analysis.wall_times import WallTimes
    from voxcast.laws.fits import Modality

TARGET_HEADS = [heading(title) for title in TITLES.values()]


@dataclass(frozen=True)
class Table:
    """A caption, column heads, and rows of text whose first cell is the row head."""

    caption: str
    head: list[str]
    rows: list[list[str]]


def models(compared: ModelComparison, floor: Mapping[str, float]) -> Table:
    """List the error of each family, best by cross-validation first, and the noise floor."""
    names = [*compared.cross_validated, *(n for n in compared.tested if n == HEADER_ONLY)]
    rows = []
    for name in names:
        row = ["best on headers alone" if name == HEADER_ONLY else _model_name(name, compared)]
        for target in TARGETS:
            validated = compared.cross_validated.get(name)
            row.append(percent(validated[target]) if validated else "")
            if compared.tested:
                tested = compared.tested.get(name)
                row.append(percent_interval(tested[target]) if tested else "")
        rows.append(row)
    head = ["Model"]
    for title in TARGET_HEADS:
        head += [f"{title}, cross-validation", *(["unseen subjects"] if compared.tested else [])]
    if floor:
        cells = [
            [percent(floor.get(t, math.nan)), ""][: 1 + bool(compared.tested)] for t in TARGETS
        ]
        rows.append(["noise floor", *(cell for pair in cells for cell in pair)])
    caption = "Mean absolute percentage error"
    if compared.tested:
        caption += f"; on {counted(compared.test_subjects, 'unseen subject')}"
        single = ", whose error has no interval"
        caption += ", with 95 % interval over subjects" if compared.test_subjects > 1 else single
    return Table(caption, head, rows)


def _model_name(name: str, compared: ModelComparison) -> str:
    kind = "(constant baseline)" if name == CONSTANT else "(baseline)"
    return f"{name} {kind * (name in BASELINES)} {'★ best' * (name == compared.winner)}".strip()


def errors(predictions: pd.DataFrame, noise: Iterable[RepeatNoise]) -> Table:
    """List the winner's error and the noise floor by application and configuration."""
    floors = {(n.app, n.device, n.cpus, n.scale): n for n in noise}
    rows = []
    for group in by_configuration(predictions):
        runs, configuration = group.runs, group.configuration
        floor = floors.get((group.app, configuration.device, configuration.cpus, group.scale))
        row = [run_group_label(group), f"{len(runs)} of {runs['subject'].nunique()}"]
        for target in TARGETS:
            row.append(percent_interval(mean_error(runs, target)))
            row.append("unknown" if floor is None else percent(floor.error_percent(target)))
        rows.append(row)
    head = ["Run", "Runs of subjects"]
    for title in TARGET_HEADS:
        head += [title, "Noise floor"]
    caption = (
        "Mean absolute percentage error on unseen subjects, with 95 % interval over subjects if "
        "there are several; noise floor: the expected error of predicting the mean of repeats"
    )
    return Table(caption, head, rows)


def bounds(metrics: Mapping[str, Mapping[str, Any]], risk: Mapping[str, Any]) -> Table:
    """List the coverage of the winner's bounds on unseen subjects and out of fold.

    Parameters
    ----------
    metrics : mapping
        The winner's metrics by target; empty without a test side.
    risk : mapping
        ``risk_at_upper_quantile`` of the receipt.
    """
    rows = []
    for target, title in zip(TARGETS, TARGET_HEADS, strict=True):
        tested, out_of_fold = metrics.get(target), risk[target]
        row = [title]
        if tested:
            rates = (tested[f"under_request{end}"] for end in ("", "_low", "_high"))
            row += [
                percent(100 * tested["coverage"]), percent(100 * tested["inside"]),
                _share(*rates), f"{tested['asked_over_used']:.2f}×",
                percent(tested["upp"]), percent(tested["ov_mape"]),
            ]  # fmt: skip
        counts = f"{out_of_fold['exceeded']} of {out_of_fold['subjects']}: "
        rows.append([*row, counts + _share(out_of_fold["rate"], *out_of_fold["interval"])])
    tested_head = [
        "Runs below upper bound", "Runs within both bounds", "Subjects above upper bound",
        "Requested / used", "Median too low (UPP)", "Excess of the others (OV_MAPE)",
    ]  # fmt: skip
    caption = (
        "Coverage of the bounds, with exact binomial 95 % interval. Requested / used: the "
        "sum of the upper bounds over the sum of what the runs used. UPP: share of runs for which "
        "the median is too low; OV_MAPE: mean excess of the others, in percent of their use"
    )
    head = ["Target", *(tested_head if metrics else []), "Subjects above upper bound, out of fold"]
    return Table(caption, head, rows)


def _share(rate: float, low: float, high: float) -> str:
    return percent_interval(Interval(100 * rate, 100 * low, 100 * high, 0))


def measured(runs: pd.DataFrame) -> Table:
    """List outcomes and measured ranges by application, configuration and scale."""
    rows = []
    for group in by_configuration(runs):
        completed = group.runs[group.runs["outcome"] == "completed"]
        outcomes = group.runs["outcome"].value_counts(sort=False).sort_index()
        rows.append([
            run_group_label(group),
            ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in outcomes.items()),
            _inputs(completed),
            *(_spread(completed[target].dropna().astype(float), target) for target in TARGETS),
            format_seconds(float(completed["cpu_s"].sum())),
        ])  # fmt: skip
    head = ["Run", "Outcome", "Volumes of subjects", *TARGET_HEADS, "Total CPU time"]
    return Table("Smallest, median and largest value of the completed runs", head, rows)


def _inputs(runs: pd.DataFrame) -> str:
    with_image = runs[runs["volume_id"] != ""]
    if len(with_image) or runs.empty:
        return f"{with_image['volume_id'].nunique()} of {with_image['subject'].nunique()}"
    return f"no image, {counted(runs['parameters_json'].nunique(), 'setting')}"


def _spread(values: pd.Series[float], target: str) -> str:
    if values.empty:
        return "unknown"
    return _dotted(amount(target, v) for v in (values.min(), values.median(), values.max()))


def _dotted(texts: Iterable[str]) -> str:
    return " · ".join(texts).replace(" ", "\u00a0")


def noise_floor(noise: Iterable[RepeatNoise], normalised: Iterable[RepeatNoise]) -> Table:
    """List the noise of repeats by application, device, CPUs and scale.

    ``normalised`` is the noise of the same groups at the usual speed of the machine, or empty.
    """
    usual = {(n.app, n.device, n.cpus, n.scale): n.cv["cpu_s"] for n in normalised}
    rows = []
    for group in noise:
        configuration = Configuration(str(group.device), group.cpus or 0)
        at_usual = usual.get((group.app, group.device, group.cpus, group.scale))
        rows.append([
            f"{group.app}: {allocation_label(configuration, group.scale)}",
            f"{group.cells} × {group.runs / group.cells:.2g}",
            *(percent_interval(group.cv[target]) for target in TARGETS),
            *([percent_interval(at_usual) if at_usual else ""] if usual else []),
        ])  # fmt: skip
    caption = (
        "Coefficient of variation of undisturbed repeats of the same run, with its 95 % interval "
        "(chi-squared)"
    )
    head = ["Run", "Cells × repeats", *TARGET_HEADS]
    return Table(caption, [*head, *(["CPU time at usual speed"] if usual else [])], rows)


def configurations(comparisons: Iterable[CpuComparison]) -> Table:
    """Compare numbers of CPUs."""
    rows = []
    for comparison in comparisons:
        cpus, base, noise = comparison.cpus, comparison.base_cpus, comparison.noise_percent
        rows.append([
            f"{cpu_label(comparison)}, {comparison.device}: {cpus} against {base}",
            str(len(comparison.pairs)),
            _ratio(comparison.speedup),
            _ratio(comparison.cpu_ratio),
            percent(100 * comparison.speedup.value * base / cpus),
            "unknown" if noise is None else percent(noise),
        ])  # fmt: skip
    caption = (
        "Geometric means over volumes, with 95 % interval over subjects (Student's t of "
        "logarithms); efficiency: speed-up divided by the ratio of CPUs"
    )
    head = ["CPUs", "Volumes", "Speed-up", "CPU time ratio", "Efficiency", "CV of repeats"]
    return Table(caption, head, rows)


def _ratio(ratio: Interval) -> str:
    return f"{ratio.value:.3g}×" + (
        f" ({ratio.low:.3g} to {ratio.high:.3g})" if ratio.bounded else ""
    )


def phases(summary: pd.DataFrame) -> Table:
    """List medians of every phase."""
    rows = [
        [
            f"{row['app']}: {counted(row['cpus'], 'CPU')}",
            str(row["phase"]),
            str(row["runs"]),
            amount("cpu_s", float(row["duration_s"])),
            percent(100 * float(row["share"])),
            amount("cpu_s", float(row["cpu_s"])),
            amount("peak_rss_bytes", row["peak_rss_bytes"] or math.nan),
        ]
        for row in summary.to_dict("records")
    ]
    head = ["Run", "Phase", "Runs", "Wall time", "Share of phases", "CPU time", "Peak memory"]
    return Table("Medians over completed runs", head, rows)


def devices(comparisons: Iterable[DeviceComparison], prices: Prices) -> Table:
    """Compare CPU and GPU."""
    rows = []
    for comparison in comparisons:
        medians = (float(comparison.pairs[name].median()) for name in ("cpu_s", "gpu_s"))
        memory = comparison.memory_bytes[: 1 if comparison.phase else 2]
        rows.append([
            f"{device_label(comparison)}, {device_machines(comparison)}",
            str(len(comparison.pairs)),
            _ratio(comparison.speedup),
            _dotted(amount("runtime_s", value) for value in medians),
            _dotted(percent(value) for value in comparison.cv_percent),
            _dotted(amount("peak_rss_bytes", value) for value in memory),
            _dotted(f"{1000 * value:.2g}" for value in comparison.usd),
        ])  # fmt: skip
    caption = (
        "CPU · GPU. Speed-up: geometric mean over pairs of the same work, with 95 % interval over "
        "subjects (Student's t of logarithms). Memory: median peak of the CPU run and, for whole "
        "runs, median peak GPU memory. USD: cost of 1000 runs at "
        f"{prices.usd_per_core_hour:g} USD per core-hour and {prices.usd_per_gpu_hour:g} USD per "
        "GPU-hour"
    )
    head = ["Run", "Pairs", "Speed-up", "Median wall time", "CV of repeats", "Memory", "USD"]
    return Table(caption, head, rows)


def variations(groups: Mapping[str, WallTimes]) -> Table:
    """Describe how wall time varies in each group, and the distribution that is closest."""
    rows = []
    for label, group in groups.items():
        varied, fit = group.varied, next(iter(group.varied.fits), None)
        rows.append([
            label,
            counted(varied.n, group.unit),
            f"{amount('runtime_s', varied.mean)} ± {amount('runtime_s', varied.sd)}",
            _dotted(amount("runtime_s", quantile.value) for quantile in varied.quantiles),
            percent(100 * varied.cv),
            "unknown" if group.noise is None else percent(group.noise.value),
            fit.family.replace("_", " ") if fit else "too few runs",
            f"{fit.ks:.3f}" if fit else "",
            "" if group.bootstrap_p is None else f"{group.bootstrap_p:.2f}",
            _modes(varied.modality),
        ])  # fmt: skip
    caption = (
        "Wall time of each volume or setting; repeats count once, as a geometric mean. A small "
        "bootstrap p means that even the closest distribution does not fit; it is slightly too "
        "large, as the distribution was selected on the same values"
    )
    head = ["Run", "Values", "Mean ± SD", "5 · 50 · 95 % quantile", "CV", "CV of repeats",
            "Closest distribution", "KS distance", "Bootstrap p", "Modes"]  # fmt: skip
    return Table(caption, head, rows)


def _modes(modality: Modality) -> str:
    if not modality.groups:
        return modality.verdict
    groups = (
        f"{percent(100 * group.weight)} near {format_seconds(group.median)}"
        for group in modality.groups
    )
    return f"{modality.verdict} ({', '.join(groups)})"
