"""``voxcast status``: a submission or a campaign, or whether predictions still hold."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast import project as projects
from voxcast.api.submission import collected
from voxcast.cli import options
from voxcast.errors import ConfigError, ModelError, TableError, VoxcastError, one_line
from voxcast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.analysis.job_drift import JobDrift


CODES = {"drifted": 1, "too little data": 3, "fine": 0}  # the worst first
LISTED = 3  # features

logger = logging.getLogger(__name__)


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
        raise ConfigError("needs to know of what", "status", then)
    folder = Path(where)
    if not folder.exists() and "/" not in where:
        from voxcast.cli.measure_campaign import collect_campaign, show_campaign

        act = collect_campaign if collect else show_campaign
        return act(project, where, changes or (), as_json=as_json)
    return _submission(folder, projects.require(project) if collect else None, as_json=as_json)


def _submission(folder: Path, root: Path | None, *, as_json: bool) -> int:
    from voxcast.jobs.collect import collected_text
    from voxcast.jobs.state import (
        SubmissionState,
        states_seen,
        status_record,
        task_rows,
        text_lines,
    )
    from voxcast.jobs.submission import Submission

    submission = Submission.open(folder)
    is_drawn = submission.plan.draw is not None
    if is_drawn and root is not None:
        then = "`voxcast measure --campaign NAME --cluster C` collects the runs of workers"
        raise ConfigError("adds the jobs of a submission", "--collect", then)
    state = SubmissionState.of(submission.plan, submission.events())
    try:
        current = states_seen(submission, state)
    except (VoxcastError, OSError) as error:
        current = {}
        logger.warning("what runs now is not known: %s", one_line(error))
    rows = task_rows(submission, state, current)
    jobs = None if root is None else collected(submission, root)
    content, lines = status_record(submission, rows), [*text_lines(submission, rows)]
    if jobs is not None:
        content |= {"collected": jobs}
        lines.append(f"  {collected_text(jobs)}")
    return options.show(content, lines, as_json=as_json)


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
        name: asdict(drift) | {"verdict": drift.verdict, "drifted": drift.drifted}
        for name, drift in drifts.items()
    }
    lines = (line for name, drift in drifts.items() for line in _drift_lines(name, drift))
    options.show(content, lines, as_json=as_json)
    verdicts = {drift.verdict for drift in drifts.values()}
    return next(code for verdict, code in CODES.items() if verdict in verdicts)


def _drift_lines(name: str, drift: JobDrift) -> Iterator[str]:
    from voxcast.analysis.job_drift import NOUNS

    end = f" in {'; '.join(drift.drifted)}" if drift.drifted else ""
    jobs, subjects = counted(drift.jobs, "job"), counted(drift.subjects, "subject")
    yield f"{name}: {drift.verdict}{end} (last {jobs}, {subjects})"
    for amount, coverage in drift.coverage.items():
        low, high = (100 * share for share in coverage.interval)
        share = 100 * coverage.below / coverage.subjects
        below = f"{coverage.below} of {counted(coverage.subjects, 'subject')} below"
        yield (
            f"  {NOUNS[amount]}: {below} the {100 * coverage.stated:g} % bound, {share:.0f} % "
            f"({low:.0f} to {high:.0f})"
        )
    for amount, median in drift.medians.items():
        yield (
            f"  {NOUNS[amount]}: median error {100 * median.median_error:.1f} %, measured "
            f"{math.exp(median.log_ratio.value):.2f} of predicted, {counted(median.jobs, 'job')}"
        )
    for machine in drift.machines:
        yield (
            f"  machine {machine.host}: speed {machine.speed_before:.2f} as learned, "
            f"{machine.speed_now:.2f} in {counted(machine.jobs, 'job')} since"
        )
    for shift in drift.features[:LISTED]:
        yield f"  {shift.name}: distance {shift.distance:.2f} of its distributions"
    for note in drift.notes:
        yield f"  {note}"
