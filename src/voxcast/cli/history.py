"""``voxcast history``: recorded runs, imported, described, replayed and compared."""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from voxcast import project as projects
from voxcast.allocation.site import Prices
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, TableError
from voxcast.log import progress
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.report import wording
from voxcast.report.wording import amount, missing_devices
from voxcast.runs.store import batch_names, load_history, open_history
from voxcast.runs.table import groups, once_each, runs_of_apps, runs_where
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.analysis.devices import DeviceComparison
    from voxcast.laws.fits import Variation
    from voxcast.runs.importer import Account

LISTED_REMARKS = 20  # of a kind
DEFAULT_INTO = Path("data/history/imported")
SMALLEST_GAINS = 3  # listed for each comparison
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
ONLINE_TITLES = {
    "largest": "the largest run so far, doubled",
    "percentile": "the 95th percentile so far, doubled",
    "online": "learned from run to run",
}  # fmt: skip

logger = logging.getLogger(__name__)


def list_histories(as_json: options.Json = False, project: options.Project = None) -> int:
    """List the recorded and imported histories of the project."""
    folder = projects.require(project) / projects.HISTORY
    rows = []
    for name in batch_names(folder):
        runs = load_history([folder / name])
        apps = ", ".join(sorted(set(runs["app"].dropna())))
        rows.append({"history": name, "runs": str(len(runs)), "apps": apps})
    lines = (
        [text_table([tuple(rows[0]), *(tuple(row.values()) for row in rows)], "<><")]
        if rows
        else []
    )
    return options.show(rows, lines, as_json=as_json)


def import_history(
    kind: Annotated[
        Literal["sacct", "nextflow", "snakemake", "slant", "csv"],
        Argument(metavar="KIND", show_default=False, help="What wrote the files."),
    ],
    files: Annotated[list[Path] | None, Argument(metavar="FILE...", show_default=False)] = None,
    into: Annotated[
        Path | None,
        Option("--into", metavar="DIR", help=f"History to add to, by default {DEFAULT_INTO}."),
    ] = None,
    column_map: Annotated[
        Path | None, Option("--map", metavar="FILE", help="Column map of a CSV table, in YAML.")
    ] = None,
    app: Annotated[
        str | None, Option("--app", metavar="NAME", help="Application of all jobs.")
    ] = None,
    pattern: options.Pattern = None,
    images: Annotated[
        Path | None,
        Option(
            "--images",
            metavar="DIR",
            help="A BIDS dataset or folder with the images of the runs, so that they can train.",
        ),
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Import runs from accounting or traces, and report what became of every record.

    Kinds: sacct (`sacct -P` with any columns), nextflow (trace.txt), snakemake (benchmark files),
    slant (the published runs of SLANT), csv (any table, with --map).
    """
    from voxcast.config.app_history import run_images
    from voxcast.runs import csv_table, importer, slant
    from voxcast.runs.imported import patterns_of

    paths = files or ([slant.folder()] if kind == "slant" else [])
    columns = csv_table.load_map(column_map) if column_map else None
    patterns = patterns_of(pattern or ())
    options.refuse_if(
        (not paths, "no file given", kind, None),
        (app is not None and "app" in patterns, "cannot be given together",
         "--app and a pattern with an app", None),
    )  # fmt: skip
    folder = into or projects.require(project) / DEFAULT_INTO
    result = importer.import_files(
        kind, paths, folder, app, columns,
        app_pattern=patterns.get("app"), subject_pattern=patterns.get("subject"),
        images=None if images is None else run_images(images, project),
    )  # fmt: skip
    content = asdict(result) | {"into": str(folder)}
    options.show(content, _import_lines(result), as_json=as_json)
    written = f"written to {folder / result.part}" if result.part else "nothing new to write"
    print(written, file=sys.stderr)
    if result.bad and len(result.bad) == result.read:
        print("voxcast: no record could be used", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


def _import_lines(account: Account) -> Iterator[str]:
    remarks = {"bad": account.bad, "skipped": account.skipped, "unknown": account.unread}
    texts = {
        title: [f"{remark.file}:{remark.line}: {remark.reason}" for remark in listed]
        for title, listed in remarks.items()
    }
    texts["no image"] = [f"{n} × {reason}" for reason, n in account.without_image.items()]
    for title, listed in texts.items():
        yield from (f"{title:8} {text}" for text in listed[:LISTED_REMARKS])
        if len(listed) > LISTED_REMARKS:
            yield f"{title:8} and {len(listed) - LISTED_REMARKS} more; --json lists all"
    imported = f"of {account.imported} imported runs"
    if account.unknown:
        columns = ", ".join(f"{column} of {count}" for column, count in account.unknown.items())
        yield f"{imported} the source does not state: {columns}"
        no_memory = account.unknown.get("peak_rss_bytes", 0) == account.imported
        if account.source == "sacct" and no_memory:
            yield "no job has a MaxRSS, which is on the lines of job steps: export without -X"
    if account.with_image or account.without_image:
        yield f"{imported} {account.with_image} have an image"
    yield (
        f"{account.read} read = {account.imported} imported + {account.duplicates} duplicates "
        f"+ {len(account.skipped)} skipped + {len(account.bad)} bad"
    )


def compare(
    history: Annotated[
        list[Path] | None,
        Argument(metavar="HISTORY...", show_default=False, help="By default all of the project."),
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compare CPU and GPU: speed-up, noise, memory and cost."""
    from voxcast.analysis.devices import compare_devices
    from voxcast.analysis.runs_on_record import runs_on_record

    if history:
        runs, phases = runs_on_record(history)
    else:
        root = projects.require(project)
        folders = [root / "data" / "history", root / "data" / "runs"]
        runs, phases = runs_on_record(folders, named=False)
    prices = Prices()
    missing = missing_devices(runs)
    comparisons = [] if missing else compare_devices(runs, phases, prices)
    rows = [_comparison_json(comparison) for comparison in comparisons]
    content = {"runs": len(runs), "missing": missing, "prices": vars(prices), "comparisons": rows}
    if comparisons:
        logger.info(
            "%d runs on record; %g USD per core-hour, %g USD per GPU-hour; intervals: 95 %%, "
            "Student's t by subject", len(runs), prices.usd_per_core_hour,
            prices.usd_per_gpu_hour,
        )  # fmt: skip
        lines = [*map(_comparison_text, comparisons)]
    else:
        lines = [missing or "no task was run on both devices"]
    return options.show(content, lines, as_json=as_json)


def _comparison_text(comparison: DeviceComparison) -> str:
    speedup, medians = comparison.speedup, comparison.pairs[["cpu_s", "gpu_s"]].median()
    interval = f"{speedup.low:.3g} to {speedup.high:.3g}" if speedup.bounded else "no interval"
    rows = [("", "wall time", "CV of repeats", "memory", "USD per 1000 runs")]
    rows += [
        (side, format_seconds(seconds), wording.percent(cv),
         wording.amount("peak_rss_bytes", memory), f"{1000 * usd:.2g}")
        for side, seconds, cv, memory, usd in zip(
            ("CPU", "GPU"), medians, comparison.cv_percent, comparison.memory_bytes,
            comparison.usd, strict=True,
        )
    ]  # fmt: skip
    return (
        f"{wording.device_label(comparison)}: {speedup.value:.3g}× on the GPU "
        f"({interval}; {counted(len(comparison.pairs), 'pair')})\n"
        f"  on {' against '.join(dict.fromkeys(comparison.hosts))}\n"
        f"{text_table(rows, '<>>>>', indent='  ')}"
    )


def _comparison_json(comparison: DeviceComparison) -> dict[str, Any]:
    fields = {name: value for name, value in vars(comparison).items() if name != "pairs"}
    speedup = comparison.speedup
    return fields | {
        "phase": comparison.phase or None,
        "pairs": len(comparison.pairs),
        "speedup": speedup.value,
        "speedup_low": speedup.low if speedup.bounded else None,
        "speedup_high": speedup.high if speedup.bounded else None,
        "cv_percent": [v if math.isfinite(v) else None for v in comparison.cv_percent],
        "memory_bytes": [v if math.isfinite(v) else None for v in comparison.memory_bytes],
        "least": comparison.pairs.head(SMALLEST_GAINS).to_dict("records"),
    }


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
        varied = variation(group[target].astype(float), bootstrap=bootstrap, seed=0)
        described.append((names, varied, _memory(peaks[peaks > 0])))
    if not described:
        raise TableError(f"no completed run has {target}", histories[0])
    rows = [
        {"group": names, **varied.as_json(), "peak_memory": memory}
        for names, varied, memory in described
    ]
    content = {"target": target, "runs": len(runs), "completed": len(completed), "groups": rows}
    if columns is None:  # only those in which the groups differ
        by = [n for n in BY if n == "app" or len({names[n] for names, _, _ in described}) > 1]
    lines = (
        line
        for names, varied, memory in described
        for line in _variation_lines({name: names[name] for name in by}, varied, memory, target)
    )
    options.show(content, lines, as_json=as_json)
    if not as_json:
        print(CAVEAT, file=sys.stderr)
    return 0


def _memory(peaks: pd.Series[float]) -> dict[str, Any] | None:
    """Return the range of the peaks of memory; None if there are none."""
    if peaks.empty:
        return None
    low, median, high = peaks.min(), peaks.median(), peaks.max()
    share = (high - low) / median
    return {
        "n": len(peaks), "low": low, "median": median, "high": high,
        "cv": peaks.std() / peaks.mean() if len(peaks) > 1 else 0.0,
        "range_share": share, "constant": bool(len(peaks) > 1 and share <= CONSTANT_RANGE),
    }  # fmt: skip


def _variation_lines(
    names: dict[str, str], varied: Variation, memory: dict[str, Any] | None, target: str
) -> Iterator[str]:
    title = ", ".join(f"{name.rpartition(':')[2]} {value or '?'}" for name, value in names.items())
    mean, sd = amount(target, varied.mean), amount(target, varied.sd)
    yield f"{title or 'all runs'}: n {varied.n}, {mean} ± {sd}, CV {100 * varied.cv:.1f} %"
    for q in varied.quantiles:
        bounds = ["?" if bound is None else amount(target, bound) for bound in (q.low, q.high)]
        interval = f" ({' to '.join(bounds)}, with {100 * q.confidence:.0f} %)"
        is_known = set(bounds) != {"?"}
        yield f"  {100 * q.p:3.0f} % quantile {amount(target, q.value)}{interval * is_known}"
    best = min((fit.aic for fit in varied.fits), default=0.0)
    for fit in varied.fits:
        p = "" if fit.ks_p_bootstrap is None else f", bootstrap p {fit.ks_p_bootstrap:.2f}"
        yield (
            f"  {fit.family:17} KS {fit.ks:.4f}, p {fit.ks_p:.2f}{p}, "
            f"AIC {fit.aic:.1f} (best + {fit.aic - best:.1f})"
        )
    if varied.fits:
        tied = f", tied with {', '.join(varied.tied[1:])}" * bool(varied.tied[1:])
        yield f"  best by KS: {varied.best_by_ks}; by AIC: {varied.tied[0]}{tied}"
    modality = varied.modality
    p = "" if math.isnan(modality.dip_p) else f" (dip p {modality.dip_p:.3f})"
    modes = ", ".join(
        f"{100 * group.weight:.0f} % around {amount(target, group.median)}"
        for group in modality.groups
    )
    yield f"  modes: {modality.verdict}{p}{': ' * bool(modes)}{modes}"
    if memory is not None:
        low, high = (format_bytes(memory[name]) for name in ("low", "high"))
        constant = "constant, " if memory["constant"] else ""
        yield f"  peak memory: {constant}{low} to {high}, CV {100 * memory['cv']:.1f} %"


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
    online: Annotated[
        bool, Option("--online", help="Learn from run to run instead, with nothing fitted before.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Replay ways of requesting on held-out runs, and show what each would have cost."""
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.evaluation import replayed_requests
    from voxcast.evaluation.recorded_table import history_table

    alpha, beta, gamma = _prices(cost)
    CostModel(alpha, beta, 0.0 if isinstance(gamma, str) else gamma)  # checks them
    history = open_history(histories)
    table = history_table(history, runs_of_apps(history.runs, [app] if app else [], histories[0]))
    if online:
        from voxcast.evaluation.online_replay import replay_online

        with progress(total=len(table), desc="replay", unit="run") as bar:
            held = replay_online(table, bar.update)
        return options.show(held, _online_lines(held), as_json=as_json)
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
            replays[name] = {
                "place": result["place"],
                "sd_log": result["sd_log"],
                **result["cost"],
            }
    if not replays:
        return EXIT_BAD_INPUT
    lines = (line for name, result in replays.items() for line in _replay_lines(name, result))
    return options.show(replays, lines, as_json=as_json)


def _online_lines(held: dict[str, dict[str, dict[str, float]]]) -> Iterator[str]:
    for app, by_rule in held.items():
        runs = counted(int(by_rule["online"]["runs"]), "run")
        yield f"{app}: {runs} in the order of their starts"
        rows = [("requested", "too small", "unused core h", "unused GB h")]
        rows += [
            (ONLINE_TITLES[rule], str(h["failures"]), f"{h['unused_core_h']:.3g}",
             f"{h['unused_gb_h']:.3g}")
            for rule, h in by_rule.items()
        ]  # fmt: skip
        yield text_table(rows, "<>>>", indent="  ")
    yield "unused: requested and not used, and all that a request held which was too small"


def _prices(text: str) -> tuple[float, float, float | str]:
    """Return the prices; the price of a request may be the median of the runtimes."""
    start, comma, last = text.rpartition(",")
    if last.strip() == MEDIAN:
        alpha, beta = options.numbers(start, 2, "--cost")
        return alpha, beta, MEDIAN
    alpha, beta, gamma = options.numbers(start + comma + last, 3, "--cost")
    return alpha, beta, gamma


def _replay_lines(app: str, result: dict[str, Any]) -> Iterator[str]:
    accounts = result["ways"]
    runs = accounts["clairvoyant"]["runs"]
    spread = math.exp(result["sd_log"])
    of = "new subjects on new days, after two local runs"
    if result["place"] != "new sitting":
        of = "new subjects, the speed of the day known"
    yield f"{app}: {runs} runs of {of}; wall times spread by a factor of {spread:.2f} (1 SD)"
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
    yield text_table(rows, "<>>>>>", indent="  ")
    yield "  normalised cost: 1 is the cost of knowing each runtime beforehand; 95 % interval"
    yield "  killed: requests that were too short, and the core-hours lost in them"
    names = sorted(TITLES.keys() - {"clairvoyant"},
                   key=lambda name: float(accounts[name]["normalised_cost"]))  # fmt: skip
    _, high = accounts[names[0]]["normalised_cost_interval"]
    close = [TITLES[n] for n in names[1:] if accounts[n]["normalised_cost_interval"][0] <= high]
    yield f"  cheapest here: {TITLES[names[0]]}"
    if close:
        yield f"  the difference may be chance to: {'; '.join(close)}"
    excess = 100 * (result["over_implied"] - 1)
    sign = "more" if excess >= 0 else "less"
    yield f"  sequences for each input cost {abs(excess):.1f} % {sign} than was predicted"


ACTIONS = {
    "list": list_histories,
    "import": import_history,
    "variation": variation,
    "replay": replay,
    "compare": compare,
}
