"""``voxcast learn``: measure, train and register a model of images; or train one of any table."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.cli.learning_session import show_end
from voxcast.cli.measure_host import update_after_runs
from voxcast.errors import ConfigError, VoxcastError
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.cli.learning_session import LearningSession
    from voxcast.config import Config
    from voxcast.config.campaigns import DeviceOutlook, LearningRequest

CATALOGUE = Path("data/catalogue/catalogue.parquet")
IMAGES = Path("data/images")
MAX_PROBLEMS_SHOWN = 10
BOUND_SUBJECTS = 19


def learn(
    context: typer.Context,
    images: Annotated[
        list[Path] | None,
        Argument(
            metavar="IMAGES|TABLE",
            show_default=False,
            help="A BIDS dataset, a folder of NIfTI files, or files of one; or a CSV table.",
        ),
    ] = None,
    app: options.App = None,
    cpus: Annotated[
        str | None, Option("--cpus", metavar="N,N", help="Numbers of CPUs to try.")
    ] = None,
    time_budget: Annotated[
        str | None,
        Option(
            "--time-budget",
            metavar="1h",
            help="Time for measuring (1h), or of training on a table (5min) or again.",
        ),
    ] = None,
    participants: options.Participants = None,
    changes: options.Set = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be measured.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask before measuring.")] = False,
    retrain: Annotated[
        bool,
        Option(
            "--retrain",
            help="Train again on all runs on record; the new model must be better on the newest.",
        ),
    ] = False,
    history: Annotated[
        list[Path] | None,
        Option(
            "--history",
            metavar="FILE",
            help="Learn from accounting (sacct, Nextflow, Snakemake); measure nothing.",
        ),
    ] = None,
    patterns: options.Pattern = None,
    job_map: Annotated[
        Path | None,
        Option(
            "--map",
            metavar="FILE",
            help="A CSV table of job, subject, session; or the column map of a CSV --history.",
        ),
    ] = None,
    target: Annotated[
        str | None, Option("--target", metavar="COL", help="Column of the TABLE to predict.")
    ] = None,
    group: Annotated[
        str | None, Option("--group", metavar="COL", help="Groups that are never split.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        Option("--exclude", metavar="COL", help="Not known before a run, or an identifier."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        Option("--keep", metavar="COL", help="Use it whatever its name or values suggest."),
    ] = None,
    quantile: Annotated[
        float, Option("--quantile", metavar="P", help="Probability of the upper bound.")
    ] = 0.9,
    trials: Annotated[
        int | None,
        Option("--trials", metavar="N", help="Trials by family, however long they take.", min=1),
    ] = None,
    seed: Annotated[int, Option("--seed", metavar="N", help="Makes it reproducible.")] = 0,
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Folder for the model of a TABLE.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace the model in --out.")] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Measure an application on your images, train on the runs, and register the model.

    Without IMAGES and --app, the project's present configuration is run. Images are not copied;
    runs are kept, and the same command continues after an interruption.

    With --history, nothing is measured: the jobs of accounting are joined with the images, by
    labels such as sub-01 in their names or working directories.

    With --target, train on the rows of a TABLE instead, judged on held-out groups, and save the
    model in --out.
    """
    budget_s = options.seconds(time_budget, "--time-budget")
    paths = [path.expanduser() for path in images or ()]
    if target is not None:
        from voxcast.cli.learn_table import TableQuestion, learn_table

        if len(paths) != 1 or out is None:
            then = "voxcast learn TABLE.csv --target COL --out DIR"
            raise ConfigError("needs one table, and a folder for the model", "--target", then)
        question = TableQuestion(
            target,
            group,
            tuple(exclude or ()),
            tuple(keep or ()),
            quantile,
            budget_s,
            trials,
            seed,
        )
        return learn_table(paths[0], question, out, force=force, as_json=as_json)
    of_table = {"--group": group, "--exclude": exclude, "--keep": keep, "--out": out}
    if named := [option for option, value in of_table.items() if value]:
        raise ConfigError("needs --target", named[0], "see `voxcast learn --help`")
    if retrain:
        from voxcast.cli.retrain import retrain_apps

        return retrain_apps(project, app, budget_s, trials, as_json=as_json)
    numbers = options.counts(cpus, "--cpus") or ()
    labels = options.labels_of(participants)
    named_more = paths or numbers or labels or changes or budget_s is not None
    if app is None and named_more:
        then = "name an application of conf/app, see `voxcast app list`"
        raise ConfigError("is needed", "--app", then)
    # Batch systems stop a job with SIGTERM, terminals with SIGHUP; they interrupt as Ctrl-C does.
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) != signal.SIG_IGN:  # by nohup
            signal.signal(signal_number, signal.default_int_handler)
    folder = projects.require(project)
    paths = [path.absolute() for path in paths]
    if inside := [
        path for path in paths if path.resolve().is_relative_to((folder / IMAGES).resolve())
    ]:
        raise ConfigError(
            f"is in {IMAGES} of the project, which is replaced by a list of your images",
            inside[0], "move it elsewhere",
        )  # fmt: skip
    files = [path.expanduser().absolute() for path in history or ()]
    job_map = None if job_map is None else job_map.expanduser().absolute()
    os.chdir(folder)  # all other paths are relative to the project
    from voxcast.cli.graph import learning_lock
    from voxcast.cli.learning_session import LearningSession
    from voxcast.tracking.address import tracking_uri

    tracking_uri(folder)  # a folder that MLflow cannot use is refused before anything is measured
    again = shlex.join(context.obj)
    request = None
    recorded: tuple[str, ...] = ()
    if history:
        from voxcast.cli.learn_history import join_history

        if app is None or len(paths) != 1 or not paths[0].is_dir():
            then = "voxcast learn BIDS --app NAME --history sacct.txt"
            raise ConfigError("needs --app, and one folder of images", "--history", then)
        recorded = (join_history(app, files, paths[0], patterns or (), job_map, dry_run=dry_run),)
        if dry_run:
            return 0
    elif patterns or job_map:
        raise ConfigError("needs --history", "--pattern" if patterns else "--map")
    if app is not None:
        request = _request(app, paths, budget_s, numbers, labels, changes or (), recorded)
    session = LearningSession(request, again)
    try:
        with contextlib.nullcontext() if dry_run else learning_lock(Path()):
            return _learn(session, dry_run=dry_run, yes=yes, as_json=as_json)
    except KeyboardInterrupt:
        print(
            f"voxcast: interrupted; finished runs are kept, `{again}` continues", file=sys.stderr
        )
        return 130


def _learn(session: LearningSession, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    from voxcast.config.campaigns import check_measurable, device_outlooks
    from voxcast.runs.series import MEASURED

    if count := session.generated_to_replace():  # before it is done
        volumes = "volume" if count == 1 else f"{count} volumes"
        _say("images", f"the {volumes} generated in {IMAGES} will be removed and replaced by "
             "the list of your images")  # fmt: skip
        _say("", "runs on them are kept; copy those that you still want to ask about")
    configured, catalogue = session.look() if dry_run else session.prepare()
    devices = device_outlooks(configured, catalogue, MEASURED)
    budget_s = configured.campaign.budget_s
    _show_images(configured, catalogue)
    _show_recorded(configured)
    try:
        if devices:
            _show_runs(devices, budget_s)
            check_measurable(devices, budget_s)
    except VoxcastError:
        session.restore()
        raise
    if dry_run:
        return 0
    if not _agreed(yes):
        session.restore()
        return 0
    if any(not entry.outlook.trusted for entry in devices):
        session.measure_first(devices)
        devices = device_outlooks(configured, catalogue, MEASURED)
        _show_runs(devices, budget_s)
    session.run(devices)
    update_after_runs(Path())
    show_end(device_outlooks(configured, catalogue, MEASURED), session.again, as_json=as_json)
    return 0


def _request(
    app: str,
    paths: list[Path],
    budget_s: float | None,
    cpus: Sequence[int],
    participants: Sequence[str],
    changes: Sequence[str],
    recorded: tuple[str, ...],
) -> LearningRequest:
    from voxcast.config.campaigns import LearningRequest
    from voxcast.features.training_table import batches_to_learn_from
    from voxcast.images.sources import select

    if participants and not paths:
        raise ConfigError("needs the dataset of the participants", "--participant-label")
    return LearningRequest(
        app=app,
        images=select(paths, participants) if paths else None,
        budget_s=3600.0 if budget_s is None else budget_s,
        cpus=tuple(cpus),
        history=() if recorded else tuple(batches_to_learn_from(projects.HISTORY, app)),
        recorded=recorded,
        changes=tuple(changes),
    )


def _show_images(configured: Config, catalogue: pd.DataFrame) -> None:
    usable = catalogue[catalogue["problem"].isna()]
    subjects = usable["subject"].nunique()
    where = "" if configured.images.path is None else f" in {configured.images.path}"
    _say("images", f"{len(usable)} of {len(catalogue)} usable, {subjects} subjects{where}")
    problems = catalogue["problem"].dropna()
    for problem in problems.iloc[:MAX_PROBLEMS_SHOWN]:
        _say("", problem)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        _say("", f"and {len(problems) - MAX_PROBLEMS_SHOWN} more, in {CATALOGUE}")
    if subjects < BOUND_SUBJECTS:
        _say("", f"a bound for 95 % of subjects takes {BOUND_SUBJECTS}; the answers will say so")


def _show_recorded(configured: Config) -> None:
    from voxcast.features.training_table import batches_to_learn_from

    for app in configured.apps:
        for name, count in batches_to_learn_from(projects.HISTORY, app).items():
            if name in configured.features.history:
                folder = projects.HISTORY / name
                _say("", f"also learns from {count} runs of {app} on record in {folder}")


def _show_runs(devices: Sequence[DeviceOutlook], budget_s: float | None) -> None:
    for entry in devices:
        ahead, labels = entry.outlook, [c.label for c in entry.settings.configurations]
        for note in entry.plan.notes:
            _say("", note)
        if not ahead.total:
            continue
        names = ", ".join(entry.settings.apps)
        recorded = f", {ahead.total - ahead.left} on record" if ahead.left < ahead.total else ""
        _say("runs", f"{ahead.left} to measure{recorded}: {names} on {' and '.join(labels)}")
        if not ahead.left:
            continue
        if ahead.failed:
            after = "" if ahead.failed == ahead.left else ", after the others"
            _say("", f"{ahead.failed} of them failed before and are tried once more{after}")
        _say("", "runs that other work on this machine disturbs are measured once more")
        if not ahead.trusted:
            _say("time", "not known: the smallest image is measured first")
        elif budget_s is not None and ahead.left_s > budget_s:
            share = max(1, int(ahead.left * budget_s / ahead.left_s))
            _say("time", f"about {format_seconds(ahead.left_s)} for all; stops after "
                 f"{format_seconds(budget_s)} (--time-budget) with about {share}")  # fmt: skip
        else:
            most_s = min(2 * ahead.left_s, budget_s or math.inf)
            _say("time", f"about {format_seconds(ahead.left_s)}, {format_seconds(most_s)} if all "
                 "are measured again, then minutes for learning")  # fmt: skip


def _agreed(yes: bool) -> bool:
    """Ask before measuring, where somebody can answer."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print("start? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _say(name: str, text: str) -> None:
    """Print a line of the announcement; the result alone goes to standard output."""
    print(f"{name:12} {text}", file=sys.stderr)
