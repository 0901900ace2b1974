"""Runs described and replayed: ``voxcast history variation`` and ``voxcast history replay``."""

from __future__ import annotations

import json
import logging
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, TableError
from voxcast.quantities import format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.laws.fits import Modality, Variation

BY = ("app", "device", "cpus", "scale", "host_class")
CAVEAT = (
    "p: Kolmogorov-Smirnov test that ignores that the distribution was fitted to these runs, so p "
    "is too large; bootstrap p: the distribution is refitted to every sample"
)
CONSTANT_RANGE = 0.02  # peak memory within 2 % of its median counts as constant
MEDIAN = "median"
TITLES = {
    "site_default": "1 h, doubled", "laboratory": "mean of the last runs, × 1.5",
    "harp_doubling": "predicted, doubled (HARP)", "population": "optimal for as many CPUs",
    "per_image": "optimal for each input", "clairvoyant": "exactly the time used",
}  # fmt: skip

logger = logging.getLogger(__name__)


def variation(
    histories: options.Histories,
    where: options.Where = None,
    columns: Annotated[
        str | None,
        Option("--by", metavar="NAME,NAME", help="Columns, label:NAME or parameter:NAME."),
    ] = None,
    target: Annotated[
        str, Option("--target", metavar="NAME", help="Column to describe.")
    ] = "runtime_s",
    bootstrap: Annotated[
        int, Option("--bootstrap", metavar="N", help="Samples for p.", min=0, max=100_000)
    ] = 200,
    as_json: options.Json = False,
) -> int:
    """Describe the variation of runs by group: distributions, modes, constancy of memory."""
    import pandas as pd

    from voxcast.laws.fits import variation
    from voxcast.log import progress
    from voxcast.runs.store import open_history
    from voxcast.runs.table import groups, once_each, runs_where

    history = open_history(histories)
    runs = runs_where(history.runs, where or ())
    numbers = [name for name in runs.columns if name.endswith(("_s", "_bytes"))]
    if target not in numbers:
        raise TableError("no such target", target, f"targets are {', '.join(numbers)}")
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
            {
                "group": names,
                **varied.as_json(),
                "peak_memory": memory,
            }
            for names, varied, memory in described
        ]
        content = {"target": target, "runs": len(runs), "completed": len(completed)}
        print(json.dumps({**content, "groups": rows}, indent=2, allow_nan=False))
        return 0
    if columns is None:  # only those in which the groups differ
        by = [n for n in BY if n == "app" or len({names[n] for names, _, _ in described}) > 1]
    for names, varied, memory in described:
        _show_variation({name: names[name] for name in by}, varied, memory, target)
    print(CAVEAT, file=sys.stderr)
    return 0


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


def _show_variation(
    names: dict[str, str], varied: Variation, memory: dict[str, Any] | None, target: str
) -> None:
    unit, factor = _unit(varied.mean, target)
    title = ", ".join(f"{name.rpartition(':')[2]} {value or '?'}" for name, value in names.items())
    print(
        f"{title or 'all runs'}: n {varied.n}, {varied.mean / factor:.1f} "
        f"± {varied.sd / factor:.1f} {unit}, CV {100 * varied.cv:.1f} %"
    )
    for quantile in varied.quantiles:
        bounds = [
            "?" if bound is None else f"{bound / factor:.1f}"
            for bound in (quantile.low, quantile.high)
        ]
        confidence = f"{100 * quantile.confidence:.0f} %"
        interval = "" if set(bounds) == {"?"} else f" ({' to '.join(bounds)}, with {confidence})"
        print(
            f"  {100 * quantile.p:3.0f} % quantile {quantile.value / factor:8.1f} {unit}{interval}"
        )
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


def replay(
    histories: options.Histories,
    app: options.App = None,
    cost: Annotated[
        str,
        Option(
            "--cost",
            metavar="A,B,C",
            help="Price of a requested and a used second, and of a request: seconds or `median`.",
        ),
    ] = "1,0,0",
    folds: Annotated[int, Option("--folds", metavar="N", help="Folds over subjects.", min=2)] = 5,
    trials: Annotated[
        int, Option("--trials", metavar="N", help="Trials by family in a fold.", min=1)
    ] = 3,
    as_json: options.Json = False,
) -> int:
    """Replay ways of requesting on held-out runs, and show what each would have cost."""
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.evaluation import replayed_requests
    from voxcast.evaluation.recorded_table import history_table
    from voxcast.log import progress
    from voxcast.runs.store import open_history
    from voxcast.runs.table import runs_of_apps

    alpha, beta, gamma = _prices(cost)
    CostModel(alpha, beta, 0.0 if isinstance(gamma, str) else gamma)  # checks them
    history = open_history(histories)
    table = history_table(history, runs_of_apps(history.runs, [app] if app else [], histories[0]))
    with progress(total=table["app"].nunique(), desc="replay") as bar:

        def step(app: str) -> None:
            bar.set_postfix_str(app)
            bar.update()

        results = replayed_requests.study(
            table, costs={"cost": (alpha, beta, gamma)}, folds=folds, trials=trials, on_step=step
        )
    replays = {}
    for name, result in results.items():
        if "not_measurable" in result:
            logger.warning("%s is not replayed: %s", name, result["not_measurable"])
        if "cost" in result:
            replays[name] = {"sd_log": result["sd_log"], **result["cost"]}
    if not replays:
        return EXIT_BAD_INPUT
    if as_json:
        print(json.dumps(replays, indent=2, allow_nan=False))
    else:
        for name, result in replays.items():
            _show_replay(name, result)
    return 0


def _prices(text: str) -> tuple[float, float, float | str]:
    """Return the prices; the price of a request may be the median of the runtimes."""
    start, comma, last = text.rpartition(",")
    if last.strip() == MEDIAN:
        alpha, beta = options.numbers(start, 2, "--cost")
        return alpha, beta, MEDIAN
    alpha, beta, gamma = options.numbers(start + comma + last, 3, "--cost")
    return alpha, beta, gamma


def _show_replay(app: str, result: dict[str, Any]) -> None:
    accounts = result["ways"]
    runs = accounts["clairvoyant"]["runs"]
    spread = math.exp(result["sd_log"])
    print(f"{app}: {runs} held-out runs; wall times spread by a factor of {spread:.2f} (1 SD)")
    rows = [
        ("requested", "normalised cost", "killed", "killed core h", "unused GB h", "done after")
    ]
    for method, title in TITLES.items():
        account = accounts[method]
        low, high = account["normalised_cost_interval"]
        cost = f"{account['normalised_cost']:.3f} ({low:.3f} to {high:.3f})"
        waste = (f"{account['waste_core_h']:.2f}", f"{account['waste_gb_h']:.1f}")
        done_after = format_seconds(account["turnaround_s"])
        rows.append((title, cost, str(account["failures"]), *waste, done_after))
    print(text_table(rows, "<>>>>>", indent="  "))
    print("  normalised cost: 1 is the cost of knowing each runtime beforehand; 95 % interval")
    print("  killed: requests that were too short, and the core-hours lost in them")
    names = sorted(TITLES.keys() - {"clairvoyant"},
                   key=lambda name: float(accounts[name]["normalised_cost"]))  # fmt: skip
    _, high = accounts[names[0]]["normalised_cost_interval"]
    close = [TITLES[n] for n in names[1:] if accounts[n]["normalised_cost_interval"][0] <= high]
    print(f"  cheapest here: {TITLES[names[0]]}")
    if close:
        print(f"  the difference may be chance to: {'; '.join(close)}")
    excess = 100 * (result["over_implied"] - 1)
    sign = "more" if excess >= 0 else "less"
    print(f"  sequences for each input cost {abs(excess):.1f} % {sign} than was predicted")
