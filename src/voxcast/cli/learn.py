"""``voxcast learn``: measure, train and register a model of images; or train one of any table.

With ``--retrain`` a challenger is fitted on the history as it has grown, and compared with the
champion on the newest jobs, from which neither has learned. It becomes the champion by the rule of
the registry: if it is shown to be better there. Then it is fitted once more with these jobs. With
too few new jobs nothing is changed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from voxcast import config
from voxcast import project as projects
from voxcast.api.host_speed import update_after_runs
from voxcast.cli import options
from voxcast.config.app_history import app_history, run_images
from voxcast.config.campaigns import (
    DeviceOutlook,
    LearningRequest,
    check_measurable,
    compose_request,
    device_outlooks,
)
from voxcast.errors import ConfigError, ModelError, RunError, VoxcastError
from voxcast.features.training_table import batches_to_learn_from
from voxcast.files import write_text
from voxcast.graph import dvc_lock, learning_lock, reproduce
from voxcast.images.sources import SOURCES, refresh_sources, select
from voxcast.measure.campaign import failed_images, measure_smallest
from voxcast.quantities import counted, format_seconds
from voxcast.runs.series import MEASURED
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.registry import forget_lost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from voxcast.config import Config
    from voxcast.serving.bundle import Bundle

PARAMS = Path(config.PARAMS_FILE)
IMAGES, CATALOGUE = Path("data/images"), Path("data/catalogue")
CATALOGUE_TABLE = "catalogue.parquet"
SUMMARY = Path("results/report/summary.txt")
MAX_SHOWN = 10  # images with a problem, or that failed
BOUND_SUBJECTS = 19

logger = logging.getLogger(__name__)


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
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Folder for the model of a TABLE.")
    ] = None,
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
        from voxcast.cli.learn_table import learn_table

        if len(paths) != 1 or out is None:
            then = "voxcast learn TABLE.csv --target COL --out DIR"
            raise ConfigError("needs one table, and a folder for the model", "--target", then)
        return learn_table(
            paths[0], target, out, budget_s=budget_s, trials=trials, quantile=quantile,
            as_json=as_json, groups=group, exclude=tuple(exclude or ()), keep=tuple(keep or ()),
        )  # fmt: skip
    of_table = {"--group": group, "--exclude": exclude, "--keep": keep, "--out": out}
    options.refuse(of_table, "needs --target", "see `voxcast learn --help`")
    folder = projects.require(project)
    if retrain:
        if budget_s == 0:
            raise ConfigError("must be above 0", "--time-budget")
        return _retrain(folder, app, budget_s, trials, as_json=as_json)
    numbers = options.counts(cpus, "--cpus") or ()
    labels = options.labels_of(participants)
    options.interruptible()
    paths = [path.absolute() for path in paths]
    generated = (folder / IMAGES).resolve()
    options.refuse_if(
        (app is None and any((paths, numbers, labels, changes, budget_s is not None)),
         "is needed", "--app", "name an application of conf/app, see `voxcast app list`"),
        (bool(labels) and not paths, "needs the dataset of the participants",
         "--participant-label", None),
        *((path.resolve().is_relative_to(generated),
           f"is in {IMAGES} of the project, which is replaced by a list of your images", path,
           "move it elsewhere") for path in paths),
    )  # fmt: skip
    files = [path.expanduser().absolute() for path in history or ()]
    job_map = None if job_map is None else job_map.expanduser().absolute()
    os.chdir(folder)  # all other paths are relative to the project
    from voxcast.tracking.address import tracking_uri

    tracking_uri(folder)  # a folder that MLflow cannot use is refused before anything is measured
    recorded: tuple[str, ...] = ()
    if not history:
        options.refuse({"--pattern": patterns, "--map": job_map}, "needs --history")
    elif app is None or len(paths) != 1 or not paths[0].is_dir():
        then = "voxcast learn BIDS --app NAME --history sacct.txt"
        raise ConfigError("needs --app, and one folder of images", "--history", then)
    else:
        from voxcast.runs.joined import join_history

        looked = run_images(paths[0], folder)
        joined = join_history(app, files, looked, patterns or (), job_map, dry_run=dry_run)
        print("\n".join(joined.lines(app)), file=sys.stderr)
        recorded = (joined.folder,)
        if dry_run:
            return 0
    request = None
    if app is not None:
        request = LearningRequest(
            app=app,
            images=select(paths, labels) if paths else None,
            budget_s=3600.0 if budget_s is None else budget_s,
            cpus=numbers,
            history=() if recorded else tuple(batches_to_learn_from(projects.HISTORY, app)),
            recorded=recorded,
            changes=tuple(changes or ()),
        )
    if dry_run:
        _announced(*_look(request))
        return 0
    again = shlex.join(context.obj)
    try:
        with learning_lock(Path()):
            return _learn(request, again, as_json=as_json)
    except KeyboardInterrupt:
        then = f"voxcast: interrupted; finished runs are kept, `{again}` continues"
        print(then, file=sys.stderr)
        return 130


def _learn(request: LearningRequest | None, again: str, *, as_json: bool) -> int:
    """Measure what is missing, run all stages that are out of date, and show the end.

    Parameters
    ----------
    request : LearningRequest or None
        None for the present configuration.
    again : str
        The command that continues.
    """
    with _restored_on_failure(PARAMS, SOURCES):
        configured, catalogue = _prepare(request, again)
        devices = _announced(configured, catalogue)
    if not all(entry.outlook.trusted for entry in devices):
        _measure_first(devices, again)
        devices = device_outlooks(configured, catalogue, MEASURED)
        _show_runs(devices, configured.campaign.budget_s)
    then = f"mend it and run `{again}` again; finished runs are kept"
    for entry in devices:
        if entry.outlook.left:
            # A sitting that its budget ended has left runs, though its stage is up to date.
            reproduce("--force", "--single-item", f"profile@{entry.device}", then=then)
    forget_lost(Path())
    reproduce(then=then)
    update_after_runs(Path())
    devices = device_outlooks(configured, catalogue, MEASURED)
    return _show_end(devices, again, as_json=as_json)


@contextlib.contextmanager
def _restored_on_failure(*paths: Path) -> Iterator[None]:
    """Put files back as they were if the block fails."""
    before = {path: path.read_text(encoding="utf-8") for path in paths if path.is_file()}
    try:
        yield
    except VoxcastError:
        for path, text in before.items():
            write_text(path, text)
        raise


def _prepare(request: LearningRequest | None, again: str) -> tuple[Config, pd.DataFrame]:
    """Compose the configuration, and read the images into the catalogue."""
    import pandas as pd

    from voxcast.config.project_files import refresh_project

    with dvc_lock(Path()):
        for name in refresh_project(Path()):
            then = "%s: edited here, so it is not replaced by that of this release"
            logger.warning(then, name)
        composed = _composed(request, PARAMS)
        images = composed.images
        if changes := refresh_sources(Path(), images.path, images.participants):
            print(changes, file=sys.stderr)
    reproduce("catalogue", then=f"mend it and run `{again}` again")
    return composed, pd.read_parquet(CATALOGUE / CATALOGUE_TABLE)


def _composed(request: LearningRequest | None, out: Path) -> Config:
    return config.load(PARAMS) if request is None else compose_request(request, PARAMS, out)


def _look(request: LearningRequest | None) -> tuple[Config, pd.DataFrame]:
    """Return what `_prepare` would, and change nothing in the project."""
    import pandas as pd

    from voxcast.images.image_set import catalogue_volumes, list_volumes
    from voxcast.images.summary import Grids
    from voxcast.measure.processes import temporary_folder

    with temporary_folder() as name:
        folder = Path(name)
        composed = _composed(request, folder / PARAMS)
        images, features = composed.images, composed.features
        table = CATALOGUE / CATALOGUE_TABLE
        if (request is not None and request.images is not None) or not table.is_file():
            if images.generated:
                then = "name IMAGES; without --dry-run the configured cohort is generated"
                raise ConfigError("no images are named, and none generated yet", "learn", then)
            list_volumes(images, folder / "images", hashes=SOURCES)
            grids = Grids(features.coarse_points, features.network_points)
            table = folder / "catalogue" / CATALOGUE_TABLE
            catalogue_volumes(images, folder / "images", table.parent, grids, features.max_voxels)
        return composed, pd.read_parquet(table)


def _announced(configured: Config, catalogue: pd.DataFrame) -> list[DeviceOutlook]:
    """Say what would be measured, and return it; refuse it if nothing can be."""
    devices = device_outlooks(configured, catalogue, MEASURED)
    _show_images(configured, catalogue)
    if devices:
        budget_s = configured.campaign.budget_s
        _show_runs(devices, budget_s)
        check_measurable(devices, budget_s)
    return devices


def _show_images(configured: Config, catalogue: pd.DataFrame) -> None:
    usable = catalogue[catalogue["problem"].isna()]
    subjects = usable["subject"].nunique()
    where = "" if configured.images.path is None else f" in {configured.images.path}"
    _say("images", f"{len(usable)} of {len(catalogue)} usable, {subjects} subjects{where}")
    problems = catalogue["problem"].dropna()
    for problem in problems.iloc[:MAX_SHOWN]:
        _say("", problem)
    if len(problems) > MAX_SHOWN:
        _say("", f"and {len(problems) - MAX_SHOWN} more, in {CATALOGUE / CATALOGUE_TABLE}")
    if subjects < BOUND_SUBJECTS:
        _say("", f"a bound for 95 % of subjects takes {BOUND_SUBJECTS}; the answers will say so")

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


def _say(name: str, text: str) -> None:
    """Print a line of the announcement; the result alone goes to standard output."""
    print(f"{name:12} {text}", file=sys.stderr)


def _measure_first(devices: Sequence[DeviceOutlook], again: str) -> None:
    """Measure one small image with applications of unknown runtime.

    Images on which an application fails are passed over, up to a number.
    """
    from voxcast.measure.runner import LOG_FILE

    for entry in (entry for entry in devices if not entry.outlook.trusted):
        run = measure_smallest(entry.settings, entry.plan)
        if run is not None and run.outcome != "completed":
            log = entry.settings.runs / run.cell_key / LOG_FILE
            then = f"mend the application and run `{again}` again"
            images = "images" if run.outcome == "failed" else "image"
            raise RunError(f"no run on the smallest {images}: {run.outcome}", log, then)


def _show_end(devices: Sequence[DeviceOutlook], again: str, *, as_json: bool) -> int:
    """Show the summary, images that failed, and the runs that are left."""
    # Failed runs are not left to do: only a mended tool measures them.
    left = sum(entry.outlook.left - entry.outlook.failed for entry in devices)
    left_s = sum(entry.outlook.left_s - entry.outlook.failed_s for entry in devices)
    failed = [
        image for entry in devices for image in failed_images(entry.settings.runs, entry.plan)
    ]
    summary = SUMMARY.read_text(encoding="utf-8").splitlines()
    named = (line.partition(" ") for line in summary)
    content = {name: text.strip() for name, _, text in named}
    lines = (*summary, *_failed_lines(failed))
    options.show(
        {"summary": content, "left": left, "left_s": left_s, "failed": failed}, lines,
        as_json=as_json,
    )  # fmt: skip
    if left:
        time_left = format_seconds(left_s)
        logger.info("%d runs are left, about %s; `%s` continues", left, time_left, again)
    return 0


def _failed_lines(failed: Sequence[dict[str, Any]]) -> Iterator[str]:
    for image in failed[:MAX_SHOWN]:
        where = f"sub-{image['subject']}" if image["subject"] else image["image"]
        reason = f"{image['app']}: {image['cause']}; see {image['log']}"
        yield f"{'failed':12} {where}, {counted(image['runs'], 'run')} of {reason}"
    if len(failed) > MAX_SHOWN:
        yield f"{'':12} and {len(failed) - MAX_SHOWN} more images, all with --json"
    if failed:
        yield f"{'':12} nothing was learned from these runs; the same command tries them once more"
        yield f"{'':12} mend the tool, or name the other images by --participant-label"


def _retrain(
    folder: Path, app: str | None, budget_s: float | None, trials: int | None, *, as_json: bool
) -> int:
    """Retrain the applications of the champion, or one; return the exit code."""
    with learning_lock(folder), contextlib.redirect_stdout(sys.stderr):
        bundle = ModelStore.of(folder).current()
        names = [app] if app else sorted(bundle.apps if bundle else ())
        if not names:
            raise ModelError("the registry has no champion", folder, "name an --app to learn")
        receipts = {name: _retrained(folder, name, bundle, budget_s, trials) for name in names}
    lines = (line for name, receipt in receipts.items() for line in _retrain_lines(name, receipt))
    return options.show(receipts, lines, as_json=as_json)


def _retrained(
    folder: Path, name: str, bundle: Bundle | None, budget_s: float | None, trials: int | None
) -> dict[str, Any]:
    from voxcast.config.served_facts import app_facts, promotion_rule
    from voxcast.models.families.family import family
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import Tuning, retrain

    has_champion = bundle is not None and name in bundle.apps
    forecaster = bundle.forecaster(name) if bundle is not None and has_champion else None
    history = app_history(folder, name, forecaster).on_training_side()
    cfg, table = history.config, history.table
    validation = Validation(
        table, history.volumes, cfg.tune.folds, cfg.tune.seed, stopped=history.stopped
    )

    def on_step(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    for reason, count in history.left_out.items():
        logger.info("%s: %d runs are left out: %s", name, count, reason)
    facts = app_facts(cfg, name, table)
    # The network only where it can see most volumes.
    sees = bool((history.volumes["shape"] > 0).all(axis=1).mean() > 0.5)
    families = tuple(n for n in cfg.tune.families if sees or not family(n).needs_volume)
    tuning = Tuning(families, trials or cfg.tune.trials, budget_s or cfg.tune.budget_s)
    rule = promotion_rule(cfg)
    return retrain(runs.connect(folder), folder, facts, validation, tuning, rule, on_step=on_step)


def _retrain_lines(name: str, receipt: dict[str, Any]) -> Iterator[str]:
    from voxcast.tracking.challengers import TOO_LITTLE

    if receipt["reason"] == TOO_LITTLE:
        yield f"{name}: too few new jobs, nothing was changed: {receipt['detail']}"
        return
    stays = "the champion stays" if not receipt["registered"] else None
    became = stays or f"{receipt['champion']} is champion"
    yield f"{name}: {became}, version {receipt['version']}: {receipt['reason']}"
    if "judged" in receipt:
        newest = receipt["judged"]
        yield (
            f"  judged on {newest['runs']} runs of {newest['subjects']} subjects since "
            f"{newest['since']}; {receipt['new']['runs']} runs are new"
        )
    yield f"  {receipt['detail']}"
    if receipt["registered"] and receipt["reason"] != "first":
        yield "  `voxcast models rollback` returns to the former champion"
