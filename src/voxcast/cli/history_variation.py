"""Distributions, modes and constancy of runs by group, for ``voxcast history variation``."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.laws.empirical import QuantileInterval
    from voxcast.laws.fits import Modality, Variation

BY = ("app", "device", "cpus", "scale", "host_class")
CAVEAT = (
    "p: Kolmogorov-Smirnov test that ignores that the distribution was fitted to these runs, so p "
    "is too large; bootstrap p: the distribution is refitted to every sample"
)

CONSTANT_RANGE = 0.02  # peak memory within 2 % of its median counts as constant


def describe(
    histories: Sequence[Path],
    apps: Sequence[str],
    where: Sequence[str],
    columns: str | None,
    target: str,
    bootstrap: int,
    *,
    as_json: bool,
) -> int:
    """Print the variation of the runs of each group.

    Raises
    ------
    TableError
        If the history or the target is missing, or no run has it.
    """
    import pandas as pd

    from voxcast.laws.fits import variation
    from voxcast.log import progress
    from voxcast.runs.store import open_history
    from voxcast.runs.table import groups, once_each, runs_of_apps, runs_where

    history = open_history(histories)
    runs = runs_where(runs_of_apps(history.runs, apps, histories[0]), where)
    _check_target(runs, target)
    completed = runs[runs["outcome"] == "completed"]
    with_target = completed[completed[target].notna() & (completed[target] > 0)]
    notes = [f"{len(runs)} runs, {len(runs) - len(completed)} excluded as not completed"]
    if len(with_target) < len(completed):
        notes.append(f"{len(completed) - len(with_target)} without {target}")
    # Repeats and anchors are not independent samples of the variation.
    measured = with_target["source"] == "measured"
    once = pd.concat([once_each(with_target[measured], target), with_target[~measured]])
    if len(once) < len(with_target):
        notes.append(f"{len(with_target) - len(once)} repeats, counted once")
    print("; ".join(notes), file=sys.stderr)
    by = list(BY) if columns is None else [name for name in columns.split(",") if name]
    described = []
    for names, group in progress(groups(once, by), desc="fitting", unit="group"):
        peaks = group["peak_rss_bytes"].dropna().astype(float)
        peaks = peaks[peaks > 0]
        described.append(
            (
                names,
                variation(group[target].astype(float), bootstrap=bootstrap, seed=0),
                _memory(peaks),
            )
        )
    if not described:
        raise TableError(f"no completed run has {target}", histories[0])
    if as_json:
        rows = [
            {"group": names, **varied.as_json(), "peak_memory": memory}
            for names, varied, memory in described
        ]
        content = {"target": target, "runs": len(runs), "completed": len(completed)}
        print(json.dumps({**content, "groups": rows}, indent=2, allow_nan=False))
        return 0
    title_columns = (
        by if columns is not None else _varying_columns([names for names, _, _ in described])
    )
    for names, varied, memory in described:
        _print({name: names[name] for name in title_columns}, varied, memory, target)
    print(CAVEAT, file=sys.stderr)
    return 0


def _varying_columns(groups: Sequence[dict[str, str]]) -> list[str]:
    """Return ``app`` and the columns in which the groups differ."""
    return [n for n in BY if n == "app" or len({names[n] for names in groups}) > 1]


def _check_target(runs: pd.DataFrame, target: str) -> None:
    numbers = [name for name in runs.columns if name.endswith(("_s", "_bytes"))]
    if target not in numbers:
        raise TableError("no such target", target, f"targets are {', '.join(numbers)}")


def _memory(peaks: pd.Series[float]) -> dict[str, Any] | None:
    """Return the range of the peaks of memory; None if there are none."""
    if peaks.empty:
        return None
    low, median, high = float(peaks.min()), float(peaks.median()), float(peaks.max())
    share = (high - low) / median
    return {
        "n": len(peaks), "low": low, "median": median, "high": high,
        "cv": float(peaks.std() / peaks.mean()) if len(peaks) > 1 else 0.0,
        "range_share": share, "constant": len(peaks) > 1 and share <= CONSTANT_RANGE,
    }  # fmt: skip


def _print(
    names: dict[str, str], varied: Variation, memory: dict[str, Any] | None, target: str
) -> None:
    unit, factor = _unit(varied.mean, target)
    title = ", ".join(f"{name.rpartition(':')[2]} {value or '?'}" for name, value in names.items())
    print(
        f"{title or 'all runs'}: n {varied.n}, {varied.mean / factor:.1f} "
        f"± {varied.sd / factor:.1f} {unit}, CV {100 * varied.cv:.1f} %"
    )
    for quantile in varied.quantiles:
        value, bounds = quantile.value / factor, _bounds(quantile, factor)
        print(f"  {100 * quantile.p:3.0f} % quantile {value:8.1f} {unit}{bounds}")
    best = min((fit.aic for fit in varied.fits), default=0.0)
    for fit in varied.fits:
        p = "" if fit.ks_p_bootstrap is None else f", bootstrap p {fit.ks_p_bootstrap:.2f}"
        print(
            f"  {fit.family:17} KS {fit.ks:.4f}, p {fit.ks_p:.2f}{p}, "
            f"AIC {fit.aic:.1f} (best + {fit.aic - best:.1f})"
        )
    if varied.fits:
        tied = ", ".join(varied.tied[1:])
        print(
            f"  best by KS: {varied.best_by_ks}; by AIC: {varied.tied[0]}"
            + (f", tied with {tied}" if tied else "")
        )
    print(f"  modes: {_modes(varied.modality, unit, factor)}")
    if memory is not None:
        low, high = (format_bytes(memory[name]) for name in ("low", "high"))
        constant = "constant, " if memory["constant"] else ""
        print(f"  peak memory: {constant}{low} to {high}, CV {100 * memory['cv']:.1f} %")


def _bounds(quantile: QuantileInterval, factor: float) -> str:
    if quantile.low is None and quantile.high is None:
        return ""
    low, high = (
        "?" if bound is None else f"{bound / factor:.1f}"
        for bound in (quantile.low, quantile.high)
    )
    return f" ({low} to {high}, with {100 * quantile.confidence:.0f} %)"


def _modes(modality: Modality, unit: str, factor: float) -> str:
    text = (
        modality.verdict
        if math.isnan(modality.dip_p)
        else (f"{modality.verdict} (dip p {modality.dip_p:.3f})")
    )
    groups = (
        f"{100 * group.weight:.0f} % around {group.median / factor:.1f} {unit}"
        for group in modality.groups
    )
    return f"{text}: {', '.join(groups)}" if modality.groups else text


def _unit(size: float, target: str) -> tuple[str, float]:
    if target.endswith("_bytes"):
        return ("GB", 1e9) if size >= 1e9 else ("MB", 1e6)
    if size >= 36_000:
        return "h", 3600.0
    return ("min", 60.0) if size >= 600 else ("s", 1.0)
