"""Tables of models, predictions and measured runs, as text with units; the template escapes it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from voxcast.analysis.run_groups import by_configuration
from voxcast.laws.intervals import Interval
from voxcast.quantities import counted, format_seconds
from voxcast.records import TARGETS, Configuration
from voxcast.report.sections import Table
from voxcast.report.wording import (
    BASELINE_TITLES,
    CONSTANT,
    TITLES,
    allocation_label,
    amount,
    cpu_label,
    device_label,
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
    from voxcast.analysis.run_groups import RepeatNoise, WallTimes
    from voxcast.report.results import AppResults

HEADS = {target: heading(title) for target, title in TITLES.items()}


def models(results: AppResults) -> Table:
    """List the error of each family, best by cross-validation first, and the noise floor."""
    rows = []
    for name in dict.fromkeys([*results.cross_validated, *results.tested]):
        kind = "(constant baseline)" if name == CONSTANT else "(baseline)"
        title = f"{name} {kind * (name in BASELINE_TITLES)} {'★ best' * (name == results.winner)}"
        row = {"Model": title.strip()}
        for target, head in HEADS.items():
            if name in results.cross_validated:
                validated = results.cross_validated[name][target]
                row[f"{head}, cross-validation"] = percent(validated)
            if name in results.tested:
                tested = results.tested[name][target]
                row[f"{head}, unseen subjects"] = percent_interval(tested)
        rows.append(row)
    floors = {
        f"{HEADS[t]}, cross-validation": percent(f) for t, f in results.floor_percent.items()
    }
    if floors:
        rows.append({"Model": "noise floor", **floors})
    caption = "Mean absolute percentage error"
    if results.tested:
        caption += f"; on {counted(results.test_subjects, 'unseen subject')}"
        single = ", whose error has no interval"
        caption += ", with 95 % interval over subjects" if results.test_subjects > 1 else single
    return Table(caption, rows)


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
    for target, head in HEADS.items():
        row = {"Target": head}
        if tested := metrics.get(target):
            rates = (tested[f"under_request{end}"] for end in ("", "_low", "_high"))
            row |= {
                "Runs below upper bound": percent(100 * tested["coverage"]),
                "Runs within both bounds": percent(100 * tested["inside"]),
                "Subjects above upper bound": _share(*rates),
                "Requested / used": f"{tested['asked_over_used']:.2f}×",
                "Median too low (UPP)": percent(tested["upp"]),
                "Excess of the others (OV_MAPE)": percent(tested["ov_mape"]),
            }
        out_of_fold = risk[target]
        share = _share(out_of_fold["rate"], *out_of_fold["interval"])
        counts = f"{out_of_fold['exceeded']} of {out_of_fold['subjects']}: {share}"
        rows.append({**row, "Subjects above upper bound, out of fold": counts})
    caption = (
        "Coverage of the bounds, with exact binomial 95 % interval. Requested / used: the "
        "sum of the upper bounds over the sum of what the runs used. UPP: share of runs for which "
        "the median is too low; OV_MAPE: mean excess of the others, in percent of their use"
    )
    return Table(caption, rows)


def _share(rate: float, low: float, high: float) -> str:
    return percent_interval(Interval(100 * rate, 100 * low, 100 * high, 0))


def measured(runs: pd.DataFrame) -> Table:
    """List outcomes and measured ranges by application, configuration and scale."""
    rows = []
    for group in by_configuration(runs):
        completed = group.runs[group.runs["outcome"] == "completed"]
        outcomes = group.runs["outcome"].value_counts(sort=False).sort_index()
        row = {
            "Run": run_group_label(group),
            "Outcome": ", ".join(f"{n} {str(k).replace('_', ' ')}" for k, n in outcomes.items()),
            "Volumes of subjects": _inputs(completed),
        }
        for target, head in HEADS.items():
            values = completed[target].dropna().astype(float)
            ends = (values.min(), values.median(), values.max()) if len(values) else (math.nan,)
            row[head] = _dotted(amount(target, value) for value in ends)
        rows.append({**row, "Total CPU time": format_seconds(float(completed["cpu_s"].sum()))})
    return Table("Smallest, median and largest value of the completed runs", rows)


def _inputs(runs: pd.DataFrame) -> str:
    with_image = runs[runs["volume_id"] != ""]
    if len(with_image) or runs.empty:
        return f"{with_image['volume_id'].nunique()} of {with_image['subject'].nunique()}"
    return f"no image, {counted(runs['parameters_json'].nunique(), 'setting')}"


def _dotted(texts: Iterable[str]) -> str:
    return " · ".join(texts).replace(" ", "\u00a0")


def noise_floor(noise: Iterable[RepeatNoise]) -> Table:
    """List the noise of repeats by application, device, CPUs and scale."""
    rows = []
    for group in noise:
        configuration = Configuration(str(group.device), group.cpus or 0)
        rows.append({
            "Run": f"{group.app}: {allocation_label(configuration, group.scale)}",
            "Cells × repeats": f"{group.cells} × {group.runs / group.cells:.2g}",
            **{HEADS[target]: percent_interval(group.cv[target]) for target in TARGETS},
        })  # fmt: skip
    caption = (
        "Coefficient of variation of undisturbed repeats of the same run, with its 95 % interval "
        "(chi-squared)"
    )
    return Table(caption, rows)


def configurations(comparisons: Iterable[CpuComparison]) -> Table:
    """Compare numbers of CPUs."""
    rows = []
    for comparison in comparisons:
        cpus, base, noise = comparison.cpus, comparison.base_cpus, comparison.noise_percent
        rows.append({
            "CPUs": f"{cpu_label(comparison)}, {comparison.device}: {cpus} against {base}",
            "Volumes": str(len(comparison.pairs)),
            "Speed-up": _ratio(comparison.speedup),
            "CPU time ratio": _ratio(comparison.cpu_ratio),
            "Efficiency": percent(100 * comparison.speedup.value * base / cpus),
            "CV of repeats": "unknown" if noise is None else percent(noise),
        })  # fmt: skip
    caption = (
        "Geometric means over volumes, with 95 % interval over subjects (Student's t of "
        "logarithms); efficiency: speed-up divided by the ratio of CPUs"
    )
    return Table(caption, rows)


def _ratio(ratio: Interval) -> str:
    ends = f" ({ratio.low:.3g} to {ratio.high:.3g})" if ratio.bounded else ""
    return f"{ratio.value:.3g}×{ends}"


def phases(summary: pd.DataFrame) -> Table:
    """List medians of every phase."""
    rows = [
        {
            "Run": f"{row['app']}: {counted(row['cpus'], 'CPU')}",
            "Phase": str(row["phase"]),
            "Runs": str(row["runs"]),
            "Wall time": amount("cpu_s", float(row["duration_s"])),
            "Share of phases": percent(100 * float(row["share"])),
            "CPU time": amount("cpu_s", float(row["cpu_s"])),
            "Peak memory": amount("peak_rss_bytes", row["peak_rss_bytes"] or math.nan),
        }
        for row in summary.to_dict("records")
    ]
    return Table("Medians over completed runs", rows)


def devices(comparisons: Iterable[DeviceComparison], prices: Prices) -> Table:
    """Compare CPU and GPU."""
    rows = []
    for comparison in comparisons:
        medians = (float(comparison.pairs[name].median()) for name in ("cpu_s", "gpu_s"))
        memory = comparison.memory_bytes[: 1 if comparison.phase else 2]
        machines = " against ".join(dict.fromkeys(comparison.hosts))
        rows.append({
            "Run": f"{device_label(comparison)}, {machines}",
            "Pairs": str(len(comparison.pairs)),
            "Speed-up": _ratio(comparison.speedup),
            "Median wall time": _dotted(amount("runtime_s", value) for value in medians),
            "CV of repeats": _dotted(percent(value) for value in comparison.cv_percent),
            "Memory": _dotted(amount("peak_rss_bytes", value) for value in memory),
            "USD": _dotted(f"{1000 * value:.2g}" for value in comparison.usd),
        })  # fmt: skip
    caption = (
        "CPU · GPU. Speed-up: geometric mean over pairs of the same work, with 95 % interval over "
        "subjects (Student's t of logarithms). Memory: median peak of the CPU run and, for whole "
        "runs, median peak GPU memory. USD: cost of 1000 runs at "
        f"{prices.usd_per_core_hour:g} USD per core-hour and {prices.usd_per_gpu_hour:g} USD per "
        "GPU-hour"
    )
    return Table(caption, rows)


def variations(groups: Mapping[str, WallTimes]) -> Table:
    """Describe how wall time varies in each group, and the distribution that is closest."""
    rows = []
    for label, group in groups.items():
        varied, fit = group.varied, next(iter(group.varied.fits), None)
        quantiles = (amount("runtime_s", quantile.value) for quantile in varied.quantiles)
        modes = ", ".join(
            f"{percent(100 * mode.weight)} near {format_seconds(mode.median)}"
            for mode in varied.modality.groups
        )
        rows.append({
            "Run": label,
            "Values": counted(varied.n, group.unit),
            "Mean ± SD": f"{amount('runtime_s', varied.mean)} ± {amount('runtime_s', varied.sd)}",
            "5 · 50 · 95 % quantile": _dotted(quantiles),
            "CV": percent(100 * varied.cv),
            "CV of repeats": "unknown" if group.noise is None else percent(group.noise.value),
            "Closest distribution": fit.family.replace("_", " ") if fit else "too few runs",
            "KS distance": f"{fit.ks:.3f}" if fit else "",
            "Bootstrap p": "" if group.bootstrap_p is None else f"{group.bootstrap_p:.2f}",
            "Modes": varied.modality.verdict + (f" ({modes})" if modes else ""),
        })  # fmt: skip
    caption = (
        "Wall time of each volume or setting; repeats count once, as a geometric mean. A small "
        "bootstrap p means that even the closest distribution does not fit; it is slightly too "
        "large, as the distribution was selected on the same values"
    )
    return Table(caption, rows)
