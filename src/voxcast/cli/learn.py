"""``voxcast learn``: measure, train and register a model of images; or train one of any table."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from voxcast import config
from voxcast import project as projects
from voxcast.api.host_speed import update_after_runs
from voxcast.cli import options
from voxcast.errors import ConfigError, ImageError, RunError, VoxcastError
from voxcast.files import write_text
from voxcast.graph import dvc_lock, learning_lock, reproduce
from voxcast.images.sources import SOURCES, refresh_sources
from voxcast.quantities import counted, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from voxcast.config import Config
    from voxcast.config.campaigns import DeviceOutlook, LearningRequest

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
    if retrain:
        from voxcast.cli.retrain import retrain_apps

        return retrain_apps(project, app, budget_s, trials, as_json=as_json)
    numbers = options.counts(cpus, "--cpus") or ()
    labels = options.labels_of(participants)
    named_more = paths or numbers or labels or changes or budget_s is not None
    if app is None and named_more:
        then = "name an application of conf/app, see `voxcast app list`"
        raise ConfigError("is needed", "--app", then)
    options.interruptible()
    folder = projects.require(project)
    paths = [path.absolute() for path in paths]
    generated = (folder / IMAGES).resolve()
    if inside := [path for path in paths if path.resolve().is_relative_to(generated)]:
        reason = f"is in {IMAGES} of the project, which is replaced by a list of your images"
        raise ConfigError(reason, inside[0], "move it elsewhere")
    files = [path.expanduser().absolute() for path in history or ()]
    job_map = None if job_map is None else job_map.expanduser().absolute()
    os.chdir(folder)  # all other paths are relative to the project
    from voxcast.tracking.address import tracking_uri

    tracking_uri(folder)  # a folder that MLflow cannot use is refused before anything is measured
    again = shlex.join(context.obj)
    recorded: tuple[str, ...] = ()
    if not history:
        options.refuse({"--pattern": patterns, "--map": job_map}, "needs --history")
    elif app is None or len(paths) != 1 or not paths[0].is_dir():
        then = "voxcast learn BIDS --app NAME --history sacct.txt"
        raise ConfigError("needs --app, and one folder of images", "--history", then)
    else:
        from voxcast.cli.history import run_images
        from voxcast.runs.joined import join_history

        looked = run_images(paths[0], folder)
        joined = join_history(app, files, looked, patterns or (), job_map, dry_run=dry_run)
        print("\n".join(joined.lines(app)), file=sys.stderr)
        recorded = (joined.folder,)
        if dry_run:
            return 0
    request = None
    if app is not None:
        request = _request(app, paths, budget_s, numbers, labels, changes or (), recorded)
    session = LearningSession(request, again)
    try:
        with contextlib.nullcontext() if dry_run else learning_lock(Path()):
            return _learn(session, dry_run=dry_run, as_json=as_json)
    except KeyboardInterrupt:
        print(
            f"voxcast: interrupted; finished runs are kept, `{again}` continues", file=sys.stderr
        )
        return 130


def _learn(session: LearningSession, *, dry_run: bool, as_json: bool) -> int:
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
    if any(not entry.outlook.trusted for entry in devices):
        session.measure_first(devices)
        devices = device_outlooks(configured, catalogue, MEASURED)
        _show_runs(devices, budget_s)
    session.run(devices)
    update_after_runs(Path())
    devices = device_outlooks(configured, catalogue, MEASURED)
    return _show_end(devices, session.again, as_json=as_json)


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
    for problem in problems.iloc[:MAX_SHOWN]:
        _say("", problem)
    if len(problems) > MAX_SHOWN:
        _say("", f"and {len(problems) - MAX_SHOWN} more, in {CATALOGUE / CATALOGUE_TABLE}")
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


def _say(name: str, text: str) -> None:
    """Print a line of the announcement; the result alone goes to standard output."""
    print(f"{name:12} {text}", file=sys.stderr)


@dataclass
class LearningSession:
    """Learning in the project of the current folder.

    Attributes
    ----------
    request : LearningRequest or None
        The request; None for the present configuration.
    again : str
        The command that continues.
    """

    request: LearningRequest | None
    again: str
    _before: dict[Path, str] = field(default_factory=dict)

    def prepare(self) -> tuple[Config, pd.DataFrame]:
        """Compose the configuration, and read the images into the catalogue.

        The former configuration is restored if that fails.

        Raises
        ------
        RunError
            If DVC is running in the project; then nothing was changed.
        """
        import pandas as pd

        try:
            with dvc_lock(Path()):
                composed = self._configure()
            reproduce("catalogue", then=f"mend it and run `{self.again}` again")
        except VoxcastError:
            self.restore()
            raise
        return composed, pd.read_parquet(CATALOGUE / CATALOGUE_TABLE)

    def _configure(self) -> Config:
        """Write the configuration and the list of images."""
        from voxcast.config.campaigns import compose_request
        from voxcast.config.project_files import refresh_project

        for name in refresh_project(Path()):
            logger.warning("%s: edited here, so it is not replaced by that of this release", name)
        self._before = {
            path: path.read_text(encoding="utf-8") for path in (PARAMS, SOURCES) if path.is_file()
        }
        if self.request is None:
            composed = config.load(PARAMS)
        else:
            composed = compose_request(self.request, PARAMS, PARAMS)
        images = composed.images
        if changes := refresh_sources(Path(), images.path, images.participants):
            print(changes, file=sys.stderr)
        return composed

    def look(self) -> tuple[Config, pd.DataFrame]:
        """Return what `prepare` would, and change nothing in the project."""
        import pandas as pd

        from voxcast.config.campaigns import compose_request
        from voxcast.images.image_set import catalogue_volumes, list_volumes
        from voxcast.images.summary import Grids
        from voxcast.measure.processes import temporary_folder

        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(temporary_folder()))
            if self.request is None:
                composed = config.load(PARAMS)
            else:
                composed = compose_request(self.request, PARAMS, folder / PARAMS)
            table = CATALOGUE / CATALOGUE_TABLE
            if self._new_images() or not table.is_file():
                if composed.images.generated:
                    then = "name IMAGES; without --dry-run the configured cohort is generated"
                    raise ConfigError("no images are named, and none generated yet", "learn", then)
                list_volumes(composed.images, folder / "images", hashes=SOURCES)
                features = composed.features
                catalogue_volumes(
                    composed.images,
                    folder / "images",
                    folder / "catalogue",
                    Grids(features.coarse_points, features.network_points),
                    features.max_voxels,
                )
                table = folder / "catalogue" / CATALOGUE_TABLE
            return composed, pd.read_parquet(table)

    def generated_to_replace(self) -> int:
        """Return how many generated volumes the named images take the place of."""
        from voxcast.images.image_set import PARTICIPANTS, generated_ids

        if not self._new_images() or not (IMAGES / PARTICIPANTS).is_file():
            return 0
        try:
            return sum(Path(path).is_file() for path in generated_ids(IMAGES))
        except ImageError:  # no generated set
            return 0

    def _new_images(self) -> bool:
        return self.request is not None and self.request.images is not None

    def restore(self) -> None:
        """Put the former configuration back."""
        for path, text in self._before.items():
            write_text(path, text)

    def measure_first(self, devices: list[DeviceOutlook]) -> None:
        """Measure one small image with applications of unknown runtime.

        Images on which an application fails are passed over, up to a number.

        Raises
        ------
        RunError
            If such a run fails.
        """
        from voxcast.measure.campaign import measure_smallest
        from voxcast.measure.runner import LOG_FILE

        for entry in devices:
            if entry.outlook.trusted:
                continue
            run = measure_smallest(entry.settings, entry.plan)
            if run is not None and run.outcome != "completed":
                log = entry.settings.runs / run.cell_key / LOG_FILE
                then = f"mend the application and run `{self.again}` again"
                images = "images" if run.outcome == "failed" else "image"
                raise RunError(f"no run on the smallest {images}: {run.outcome}", log, then)

    def run(self, devices: list[DeviceOutlook]) -> None:
        """Make the missing runs, and run all stages that are out of date."""
        from voxcast.tracking.registry import forget_lost

        then = f"mend it and run `{self.again}` again; finished runs are kept"
        for entry in devices:
            if entry.outlook.left:
                # A sitting that its budget ended has left runs, though its stage is up to date.
                reproduce("--force", "--single-item", f"profile@{entry.device}", then=then)
        forget_lost(Path())
        reproduce(then=then)


def _show_end(devices: Sequence[DeviceOutlook], again: str, *, as_json: bool) -> int:
    """Show the summary, images that failed, and the runs that are left."""
    from voxcast.measure.campaign import failed_images

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
