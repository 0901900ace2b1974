"""``voxcast history``: recorded runs, imported, described, replayed and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.cli.history_import import DEFAULT_INTO, KINDS, import_runs
from voxcast.errors import ConfigError
from voxcast.text_table import text_table

Apps = Annotated[
    str | None, Option("--app", metavar="NAME,NAME", help="Applications; by default all.")
]


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
    return import_runs(
        kind, files or [], into, column_map, app, pattern or [], images, project, as_json=as_json
    )


def variation(
    history: options.Histories,
    apps: Apps = None,
    where: options.Where = None,
    by: Annotated[
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
    from voxcast.cli.history_variation import describe

    return describe(history, _names(apps), where or [], by, target, bootstrap, as_json=as_json)


def replay(
    history: options.Histories,
    apps: Apps = None,
    where: options.Where = None,
    labels: Annotated[
        str | None,
        Option("--labels", metavar="NAME,NAME", help="Labels of imported runs that are features."),
    ] = None,
    cost: Annotated[
        str,
        Option(
            "--cost",
            metavar="A,B,C",
            help="Price of a requested and a used second, and of a request: seconds or `median`.",
        ),
    ] = "1,0,0",
    site_default: Annotated[
        str, Option("--site-default", metavar="TIME", help="Default request of the site.")
    ] = "1h",
    wait: Annotated[
        str, Option("--wait", metavar="A,G", help="A request of length t waits A t + G seconds.")
    ] = "0,0",
    folds: Annotated[int, Option("--folds", metavar="N", help="Folds over subjects.", min=2)] = 5,
    trials: Annotated[
        int, Option("--trials", metavar="N", help="Trials by family in a fold.", min=1)
    ] = 3,
    as_json: options.Json = False,
) -> int:
    """Replay ways of requesting on held-out runs, and show what each would have cost."""
    from voxcast.cli.history_replay import replay_requests

    site_default_s = options.seconds(site_default, "--site-default") or 0.0
    if not site_default_s > 0:
        raise ConfigError("must be above 0", "--site-default")
    waiting = options.numbers(wait, 2, "--wait")
    if min(waiting) < 0:
        raise ConfigError(f"must not be negative, not {wait}", "--wait")
    return replay_requests(
        history, _names(apps), where or [], labels, cost, site_default_s, waiting, folds, trials,
        as_json=as_json,
    )  # fmt: skip


def compare(
    history: Annotated[
        list[Path] | None,
        Argument(metavar="HISTORY...", show_default=False, help="By default all of the project."),
    ] = None,
    core_hour: Annotated[
        float | None,
        Option("--usd-per-core-hour", metavar="USD", help="Price of a core-hour.", min=0),
    ] = None,
    gpu_hour: Annotated[
        float | None,
        Option("--usd-per-gpu-hour", metavar="USD", help="Price of a GPU-hour.", min=0),
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compare CPU and GPU: speed-up, noise, memory, cost and smallest gains."""
    from voxcast.cli.history_compare import compare_runs

    return compare_runs(history or [], core_hour, gpu_hour, project, as_json=as_json)


ACTIONS = {
    "list": list_histories,
    "import": import_history,
    "variation": variation,
    "replay": replay,
    "compare": compare,
}


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]
