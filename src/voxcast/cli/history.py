"""``voxcast history``: recorded runs, imported, described, replayed and compared."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast import project as projects
from voxcast.allocation.site import Prices
from voxcast.cli import options
from voxcast.cli.history_replay import replay, variation
from voxcast.errors import EXIT_BAD_INPUT, ConfigError
from voxcast.quantities import counted, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.analysis.devices import DeviceComparison
    from voxcast.runs.imported import NamePattern
    from voxcast.runs.importer import Account, RunImages

KINDS = ("sacct", "nextflow", "snakemake", "slant", "csv")
LISTED_REMARKS = 20  # of a kind
DEFAULT_INTO = Path("data/history/imported")
SMALLEST_GAINS = 3  # listed for each comparison


def list_histories(as_json: options.Json = False, project: options.Project = None) -> int:
    """List the recorded and imported histories of the project."""
    from voxcast.runs.store import load_history, recorded_parts

    folder = projects.require(project) / "data/history"
    rows: list[dict[str, str]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and recorded_parts(path):
            runs = load_history([path])
            apps = ", ".join(sorted(set(runs["app"].dropna())))
            rows.append({"history": path.name, "runs": str(len(runs)), "apps": apps})
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        table = [(row["history"], row["runs"], row["apps"]) for row in rows]
        print(text_table([("history", "runs", "applications"), *table], "<><"))
    return 0


def import_history(
    kind: Annotated[str, Argument(metavar="KIND", help=", ".join(KINDS), show_default=False)],
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
    if kind not in KINDS:
        raise ConfigError("unknown kind", kind, f"choose from {', '.join(KINDS)}")
    from voxcast.runs import csv_table, importer, slant

    paths = files or ([slant.folder()] if kind == "slant" else [])
    if not paths:
        raise ConfigError("no file given", kind)
    columns = csv_table.load_map(column_map) if column_map else None
    patterns = patterns_of(pattern or ())
    if app is not None and "app" in patterns:
        raise ConfigError("cannot be given together", "--app and a pattern with an app")
    folder = into or projects.require(project) / DEFAULT_INTO
    result = importer.import_files(
        kind, paths, folder, app, columns,
        app_pattern=patterns.get("app"), subject_pattern=patterns.get("subject"),
        images=None if images is None else run_images(images, project),
    )  # fmt: skip
    if as_json:
        print(json.dumps(asdict(result) | {"into": str(folder)}, indent=2))
    else:
        _show_import(result, folder)
    if result.bad and len(result.bad) == result.read:
        print("voxcast: no record could be used", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


def patterns_of(texts: Sequence[str]) -> dict[str, NamePattern]:
    """Return the patterns of application and subject in regular expressions.

    A group without a name is the application.

    Raises
    ------
    ConfigError
        If one is not a regular expression, or has no group.
    """
    from voxcast.runs.imported import name_pattern

    patterns = {}
    for text in texts:
        pattern = name_pattern(text, "app", "--pattern")
        named = pattern.regex.groupindex
        if "app" in named or not named:
            patterns["app"] = pattern
        if "subject" in named:
            patterns["subject"] = name_pattern(text, "subject", "--pattern")
    if texts and not patterns:
        then = "e.g. (?P<app>[a-z]+)"
        raise ConfigError(f"has no group app or subject: {texts[0]!r}", "--pattern", then)
    return patterns


def run_images(folder: Path, project_folder: Path | None) -> RunImages:
    """Return the images, to be read on the grid of the project, if there is one."""
    from voxcast.images.volume import POINTS
    from voxcast.runs.importer import RunImages

    root = projects.find(project_folder)
    if root is None:
        return RunImages(folder, POINTS)
    from voxcast import config
    from voxcast.images.characteristics import load_lab_characteristics

    features = config.load(root / projects.PROJECT_FILE).features
    lab = load_lab_characteristics(features.characteristics, root)
    return RunImages(folder, features.coarse_points, lab)


def _show_import(account: Account, into: Path) -> None:
    titles = (("bad", account.bad), ("skipped", account.skipped), ("unknown", account.unread))
    for title, remarks in titles:
        texts = [f"{remark.file}:{remark.line}: {remark.reason}" for remark in remarks]
        _show_some(title, texts)
    if account.unread:
        fields = Counter(remark.reason.partition(":")[0] for remark in account.unread)
        listed = ", ".join(f"{count} × {name}" for name, count in fields.most_common())
        print(f"fields that could not be read and are unknown: {listed}")
    imported = f"of {account.imported} imported runs"
    if account.unknown:
        listed = ", ".join(f"{column} of {count}" for column, count in account.unknown.items())
        print(f"{imported} the source does not state: {listed}")
        if (
            account.source == "sacct"
            and account.unknown.get("peak_rss_bytes", 0) == account.imported
        ):
            print("no job has a MaxRSS, which is on the lines of job steps: export without -X")
    if account.with_image or account.without_image:
        print(f"{imported} {account.with_image} have an image")
    _show_some("no image", [f"{n} × {reason}" for reason, n in account.without_image.items()])
    print(
        f"{account.read} read = {account.imported} imported + {account.duplicates} duplicates "
        f"+ {len(account.skipped)} skipped + {len(account.bad)} bad"
    )
    written = f"written to {into / account.part}" if account.part else "nothing new to write"
    print(written, file=sys.stderr)


def _show_some(title: str, texts: Sequence[str]) -> None:
    for text in texts[:LISTED_REMARKS]:
        print(f"{title:8} {text}")
    if len(texts) > LISTED_REMARKS:
        print(f"{title:8} and {len(texts) - LISTED_REMARKS} more; --json lists all")


def compare(
    history: Annotated[
        list[Path] | None,
        Argument(metavar="HISTORY...", show_default=False, help="By default all of the project."),
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compare CPU and GPU: speed-up, noise, memory, cost and smallest gains."""
    from voxcast.analysis.devices import compare_devices, devices_without_runs
    from voxcast.analysis.runs_on_record import runs_on_record
    from voxcast.report.wording import missing_devices

    if history:
        runs, phases = runs_on_record(history)
    else:
        root = projects.require(project)
        folders = [root / "data" / "history", root / "data" / "runs"]
        runs, phases = runs_on_record(folders, named=False)
    prices = Prices()
    missing = missing_devices(devices_without_runs(runs))
    comparisons = [] if missing else compare_devices(runs, phases, prices)
    if as_json:
        rows = [_comparison_json(comparison) for comparison in comparisons]
        content = {"runs": len(runs), "missing": missing, "prices": vars(prices)}
        print(json.dumps({**content, "comparisons": rows}, indent=2, allow_nan=False))
        return 0
    if missing or not comparisons:
        print(missing or "no task was run on both devices")
        return 0
    for comparison in comparisons:
        print(_comparison_text(comparison))
    print(
        f"voxcast: {len(runs)} runs on record; {prices.usd_per_core_hour:g} USD per core-hour, "
        f"{prices.usd_per_gpu_hour:g} USD per GPU-hour; intervals: 95 %, Student's t by subject",
        file=sys.stderr,
    )
    return 0


def _comparison_text(comparison: DeviceComparison) -> str:
    from voxcast.report.wording import (
        amount,
        device_label,
        device_machines,
        percent,
        smallest_gains,
    )

    pairs, speedup = comparison.pairs, comparison.speedup
    cv, memory, usd = comparison.cv_percent, comparison.memory_bytes, comparison.usd
    interval = f"{speedup.low:.3g} to {speedup.high:.3g}" if speedup.bounded else "no interval"
    lines = [
        f"{device_label(comparison)}: {speedup.value:.3g}× on the GPU "
        f"({interval}; {counted(len(pairs), 'pair')})",
        f"  on {device_machines(comparison)}",
        f"  median {format_seconds(pairs['cpu_s'].median())} on the CPU, "
        f"{format_seconds(pairs['gpu_s'].median())} on the GPU",
        f"  CV of repeats {percent(cv[0])} on the CPU, {percent(cv[1])} on the GPU",
        f"  memory {amount('peak_rss_bytes', memory[0])}, "
        f"GPU memory {amount('peak_gpu_bytes', memory[1])}",
        f"  {1000 * usd[0]:.2g} USD per 1000 runs on the CPU, {1000 * usd[1]:.2g} USD on the GPU",
        f"  smallest speed-up: {'; '.join(smallest_gains(comparison, SMALLEST_GAINS))}",
    ]
    return "\n".join(lines)


def _comparison_json(comparison: DeviceComparison) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    return {
        "app": comparison.app,
        "phase": comparison.phase or None,
        "scale": comparison.scale,
        "cpus": comparison.cpus,
        "gpu_cpus": comparison.gpu_cpus,
        "gpus": comparison.gpus,
        "hosts": list(comparison.hosts),
        "pairs": len(comparison.pairs),
        "speedup": comparison.speedup.value,
        "speedup_low": finite(comparison.speedup.low),
        "speedup_high": finite(comparison.speedup.high),
        "cv_percent": [finite(v) for v in comparison.cv_percent],
        "memory_bytes": [finite(v) for v in comparison.memory_bytes],
        "usd": list(comparison.usd),
        "least": comparison.pairs.head(SMALLEST_GAINS).to_dict("records"),
    }


ACTIONS = {
    "list": list_histories,
    "import": import_history,
    "variation": variation,
    "replay": replay,
    "compare": compare,
}
