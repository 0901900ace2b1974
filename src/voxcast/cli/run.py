"""Jobs: ``voxcast submit`` runs an application as predicted, ``voxcast status`` follows it.

``voxcast status`` also shows a campaign, and whether predictions still hold.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast import project as projects
from voxcast.api import plan as plans
from voxcast.api import submission as submissions
from voxcast.cli import options
from voxcast.cli.measure import collect_campaign, show_campaign
from voxcast.errors import (
    EXIT_BAD_INPUT,
    ConfigError,
    ModelError,
    TableError,
    VoxcastError,
    one_line,
)
from voxcast.jobs.follow import follow
from voxcast.jobs.slurm import check_installed
from voxcast.jobs.state import (
    SubmissionState,
    TaskState,
    expected,
    plan_lines,
    states_seen,
    status_record,
    task_rows,
    text_lines,
)
from voxcast.jobs.submission import Submission
from voxcast.quantities import counted
from voxcast.records import as_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from voxcast.analysis.job_drift import JobDrift

INTERRUPTED = 130
TASKS_GIVEN_UP = 1
DETACHED_PATIENCE_S = 240.0  # while another process follows
CODES = {"drifted": 1, "too little data": 3, "fine": 0}  # the worst first
LISTED = 3  # features

logger = logging.getLogger(__name__)


def submit(
    images: Annotated[
        list[Path] | None,
        Argument(
            metavar="IMAGE...|BIDS|PLAN.json",
            show_default=False,
            help="Images, a BIDS dataset or a folder of images; or a plan (`submit --dry-run "
            "--json`) or a recommendation (`recommend --json`), which needs no model.",
        ),
    ] = None,
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    cluster: options.Cluster = None,
    policy: options.Policy = None,
    deadline: options.Deadline = None,
    budget: options.Budget = None,
    changes: options.Set = None,
    participants: options.Participants = None,
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Results, a folder for each image.")
    ] = None,
    nodes: Annotated[
        str | None,
        Option(
            "--nodes",
            metavar="NxCORES",
            help="Choose the CPUs by which all images are done soonest on N nodes.",
        ),
    ] = None,
    throttle: Annotated[
        int | None, Option("--throttle", metavar="N", help="Tasks at a time.", min=1)
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        Option("--sbatch", metavar="KEY=VALUE", help="An option of sbatch, e.g. account=mri."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the plan, and submit nothing.")
    ] = False,
    detach: Annotated[
        bool, Option("--detach", help="Do not wait: a small job follows the others.")
    ] = False,
    poll: Annotated[str, Option("--poll", hidden=True)] = "30s",
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Run an application on images with the requests that a model predicts for each.

    Images with similar requests share an array job of Slurm; `--cluster local` runs them here.
    Jobs that run out of time or memory are resubmitted with larger requests, and preempted ones
    with the same. Images that have results are left out. Ctrl-C leaves the jobs running, and
    `voxcast submit --out DIR` goes on. The exit code is 1 if a task was given up.
    """
    poll_s = options.seconds(poll, "--poll") or 30.0
    if not images and app is None and out is not None and not dry_run:
        submission = Submission.open(out)
        if submission.executor == "slurm":
            check_installed()
        elif detach:
            raise ConfigError("needs Slurm", "--detach", "the submission runs on this machine")
        return _run(submission, poll_s, project, detach=detach, as_json=as_json)

    size = plans.nodes_of(nodes)
    question = options.question(
        app, cpus, gpus, parameters, model, project, cluster=cluster, policy=policy,
        deadline=deadline, budget=budget, changes=changes,
    )  # fmt: skip
    is_planned = images is not None and images[0].suffix == ".json"
    options.refuse_if(
        (detach and question.is_local, "needs Slurm", "--detach",
         "leave it out with --cluster local"),
        (out is None and not dry_run, "is needed: results go nowhere else", "--out",
         "give --out DIR"),
        (is_planned and len(images or ()) > 1, "has its images", images and images[0],
         "leave out IMAGE"),
    )  # fmt: skip
    code = 0
    if is_planned and images:
        jobs = plans.jobs_of_file(images[0], question, size)
    else:
        plan = plans.Plan.of(question, images or (), options.labels_of(participants))
        jobs = plan.jobs(size)
        code = 0 if plan.is_complete else EXIT_BAD_INPUT
    if out is not None:
        jobs = plans.left_to_do(jobs, out)
    jobs = plans.ready(jobs, question, sbatch or (), throttle)
    if dry_run or out is None:
        content = jobs.to_record() | {"expected": expected(jobs)}
        return options.show(content, plan_lines(jobs), as_json=as_json) or code
    if not jobs.tasks:
        logger.info("nothing is left to do in %s", out)
        return code
    if not question.is_local:
        check_installed()
    submission = Submission.create(jobs, out, "local" if question.is_local else "slurm")
    logger.info("submission %s", submission.folder)
    return _run(submission, poll_s, project, detach=detach, as_json=as_json) or code


def _run(
    submission: Submission, poll_s: float, project: Path | None, *, detach: bool, as_json: bool
) -> int:
    """Follow a submission, or hand that to a job; return the exit code."""
    with submissions.following(submission, DETACHED_PATIENCE_S if detach else 0.0) as follower:
        if not detach:
            try:
                follow(follower, submissions.pause_of(submission, poll_s))
            except KeyboardInterrupt:
                left, again = submissions.left_of(submission), submissions.again(submission)
                logger.warning("interrupted; %s; `%s` continues", left, again)
                return INTERRUPTED
        elif job := submissions.hand_over(follower):
            then = f"voxcast status {shlex.quote(str(submission.folder))}"
            logger.info("job %s follows when jobs end; see `%s`", job, then)
            return 0
    submissions.collect_at_end(submission, project)
    statuses = _show(submission, follower.state, follower.current, as_json=as_json)
    if statuses == {"refused"}:
        return EXIT_BAD_INPUT
    return TASKS_GIVEN_UP if statuses & {"refused", "given up"} else 0


def _show(
    submission: Submission,
    state: SubmissionState,
    current: Mapping[str, TaskState],
    collected: dict[str, Any] | None = None,
    *,
    as_json: bool,
) -> set[str]:
    """Show where a submission stands, and its collected runs; return its statuses."""
    from voxcast.jobs.collect import collected_text

    rows = task_rows(submission, state, current)
    content, lines = status_record(submission, rows), [*text_lines(submission, rows)]
    if collected is not None:
        content |= {"collected": collected}
        lines.append(f"  {collected_text(collected)}")
    options.show(content, lines, as_json=as_json)
    return {row["status"] for row in rows}


def status(
    where: Annotated[
        str | None,
        Argument(
            metavar="DIR|CAMPAIGN",
            show_default=False,
            help="Folder of a submission or of its results, or a campaign.",
        ),
    ] = None,
    collect: Annotated[
        bool,
        Option("--collect", help="Add what has ended to the project's history, to learn from."),
    ] = False,
    drift: Annotated[
        bool, Option("--drift", help="Tell whether predictions still hold for the last jobs.")
    ] = False,
    last: Annotated[int, Option("--last", metavar="N", help="--drift: jobs.", min=1)] = 200,
    changes: options.Set = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show how far a submission or a campaign is; nothing is changed without --collect.

    With --drift the exit code is 0 if nothing drifted, 1 if something did, and 3 if there are too
    few jobs to tell.
    """
    if drift:
        return _drift(project, last, as_json=as_json)
    if where is None:
        then = "name the folder of a submission's results, or a campaign; or give --drift"
        raise ConfigError("no folder or campaign was named", "status", then)
    folder = Path(where)
    if not folder.exists() and "/" not in where:
        act = collect_campaign if collect else show_campaign
        return act(project, where, changes or (), as_json=as_json)
    root = projects.require(project) if collect else None

    submission = Submission.open(folder)
    if submission.plan.draw is not None and collect:
        then = "`voxcast measure --campaign NAME --cluster C` collects the runs of workers"
        raise ConfigError("adds the jobs of a submission", "--collect", then)
    state = SubmissionState.of(submission.plan, submission.events())
    current: Mapping[str, TaskState] = {}
    try:
        current = states_seen(submission, state)
    except (VoxcastError, OSError) as error:
        logger.warning("what runs now is not known: %s", one_line(error))
    jobs = None if root is None else submissions.collected(submission, root)
    _show(submission, state, current, jobs, as_json=as_json)
    return 0


def _drift(project: Path | None, last: int, *, as_json: bool) -> int:
    """Show what drifted in the last jobs on record, by application."""
    from voxcast.analysis.job_drift import drift_of, last_jobs, memory_notes
    from voxcast.config.app_history import app_history
    from voxcast.jobs.collect import BATCH
    from voxcast.runs.store import load_history, recorded_parts
    from voxcast.serving.model_store import ModelStore

    folder = projects.require(project)
    bundle = ModelStore.of(folder).current()
    if bundle is None:
        raise ModelError("the project has no champion", folder, "train one with `voxcast learn`")
    recorded = folder / projects.HISTORY / BATCH
    if not recorded_parts(recorded):
        then = "`voxcast status DIR --collect` adds those of a submission"
        raise TableError("no job is on record", recorded, then)
    runs = load_history([recorded])
    drifts = {}
    for name in sorted(bundle.apps):
        history = app_history(folder, name, bundle.forecaster(name))
        jobs = last_jobs(runs[runs["app"] == name], last)
        notes = memory_notes(jobs, history.memory_method)
        notes += [f"{count} runs left out: {why}" for why, count in history.left_out.items()]
        drifts[name] = drift_of(jobs, history.table, bundle, name, notes)
    content = {
        name: as_fields(drift) | {"verdict": drift.verdict, "drifted": drift.drifted}
        for name, drift in drifts.items()
    }
    lines = (line for name, drift in drifts.items() for line in _drift_lines(name, drift))
    options.show(content, lines, as_json=as_json)
    verdicts = {drift.verdict for drift in drifts.values()}
    return next(code for verdict, code in CODES.items() if verdict in verdicts)


def _drift_lines(name: str, drift: JobDrift) -> Iterator[str]:
    from voxcast.analysis.job_drift import KINDS

    end = f" in {'; '.join(drift.drifted)}" if drift.drifted else ""
    jobs, subjects = counted(drift.jobs, "job"), counted(drift.subjects, "subject")
    yield f"{name}: {drift.verdict}{end} (last {jobs}, {subjects})"
    features = [check for check in drift.checks if check.kind == "feature"]
    for check in [c for c in drift.checks if c not in features[LISTED:]]:
        observed = check.observed
        interval = f" ({observed.low:.2f} to {observed.high:.2f})" if observed.bounded else ""
        yield (
            f"  {check.title}: {KINDS[check.kind][1]} {observed.value:.2f}{interval}, "
            f"expected {check.expected:.2f}"
        )
    for note in drift.notes:
        yield f"  {note}"
