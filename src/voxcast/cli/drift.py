"""Whether predictions still hold for the last jobs, for ``voxcast status --drift``.

Looks at the jobs that ``voxcast submit`` and ``voxcast status --collect`` have put on record:
coverage of the bounds that they were submitted with, errors of the medians over time, features
against the training runs', speeds of the machines.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project as projects
from voxcast.cli.retrain import registered_bundle
from voxcast.errors import ModelError, TableError
from voxcast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.analysis.job_drift import JobDrift, MachineDrift
    from voxcast.serving.bundle import Bundle

CODES = {"fine": 0, "drifted": 1, "too little data": 3}
BATCH = Path("data/history/jobs")
LISTED = 3


def show_drift(project: Path | None, app: str | None, last: int, *, as_json: bool) -> int:
    """Print what drifted, by application.

    Returns
    -------
    int
        0 if nothing drifted, 1 if something did, 3 if there are too few jobs to tell.
    """
    folder = projects.require(project)
    from voxcast.runs.store import load_history, recorded_parts

    bundle = registered_bundle(folder)
    if bundle is None:
        raise ModelError("the project has no champion", folder, "train one with `voxcast learn`")
    names = [bundle.app_named(app).name] if app else sorted(bundle.apps)
    if not recorded_parts(folder / BATCH):
        then = "`voxcast status DIR --collect` adds those of a submission"
        raise TableError("no job is on record", folder / BATCH, then)
    runs = load_history([folder / BATCH])
    by_app = {name: _drift(folder, name, bundle, runs, last) for name in names}
    if as_json:
        content = {
            name: asdict(drift) | {"verdict": drift.verdict, "drifted": drift.drifted}
            for name, drift in by_app.items()
        }
        print(json.dumps(content, indent=2, default=float))
    else:
        for name, drift in by_app.items():
            for line in _lines(name, drift):
                print(line)
    verdicts = [drift.verdict for drift in by_app.values()]
    order = ("drifted", "too little data", "fine")
    return CODES[min(verdicts, key=order.index)]


def _drift(folder: Path, name: str, bundle: Bundle, runs: pd.DataFrame, last: int) -> JobDrift:
    from dataclasses import replace

    from voxcast.analysis.feature_shift import feature_shifts
    from voxcast.analysis.job_drift import (
        AMOUNTS,
        LEVEL,
        JobDrift,
        coverage_of,
        last_jobs,
        medians_of,
        memory_notes,
    )
    from voxcast.cli.app_history import app_history
    from voxcast.features.rows import feature_names

    jobs = last_jobs(runs[runs["app"] == name], last)
    notes = []
    history = app_history(folder, name, bundle.forecaster(name))
    table = history.table
    learned_from = table["cell_key"].isin(bundle.cell_keys(name))
    since = table[table["cell_key"].isin(jobs["cell_key"]) & ~learned_from]
    hosts = sorted(set(since["host_id"]) - {""})
    # Each is tested at this level, so that all together are wrong with probability `LEVEL`.
    level = LEVEL / (2 * len(AMOUNTS) + len(hosts) + 1)
    coverage = {a: c for a in AMOUNTS if (c := coverage_of(jobs, a)) is not None}
    coverage = {a: replace(c, drifted=c.probability < level) for a, c in coverage.items()}
    medians = {a: m for a in AMOUNTS if (m := medians_of(jobs, a, level)) is not None}
    shifts = []
    if len(since) and learned_from.any():
        names = feature_names(table)
        before, after = (
            rows.drop_duplicates("subject")[names].drop(columns="app")
            for rows in (table[learned_from], since)
        )
        shifts = feature_shifts(before, after, level)
    else:
        newer = ~jobs["cell_key"].isin(bundle.cell_keys(name))
        why = "no job is newer than what the champion learned from"
        if newer.any():
            newer_jobs = counted(int(newer.sum()), "newer job")
            causes = ", ".join(f"{count} {why}" for why, count in history.left_out.items())
            why = f"none of {newer_jobs} can be compared; left out: {causes or 'none'}"
        notes.append(f"features and machines: {why}")
    notes += memory_notes(jobs, history.memory_method)
    machines = _machines(bundle, name, since, hosts, level)
    subjects = int(jobs["subject"].where(jobs["subject"] != "", jobs["cell_key"]).nunique())
    return JobDrift(
        len(jobs), subjects, coverage, medians, tuple(machines), tuple(shifts), tuple(notes)
    )


def _machines(
    bundle: Bundle, name: str, since: pd.DataFrame, hosts: list[str], level: float
) -> list[MachineDrift]:
    from voxcast.analysis.job_drift import machine_drift
    from voxcast.features.rows import rows_of
    from voxcast.models.point_model import Query
    from voxcast.models.speeds import residuals_of

    forecaster = bundle.forecaster(name)
    speeds = forecaster.speeds
    if speeds is None:
        return []
    drifts = []
    for host in hosts:
        on_host = since[since["host_id"] == host]
        # At the average speed of the training runs.
        predictions = forecaster.predict([Query(row) for row in rows_of(on_host)])
        residuals = residuals_of(on_host.to_dict("records"), predictions)
        if residuals:
            drifts.append(machine_drift(host, speeds, residuals, level))
    return drifts


def _lines(name: str, drift: JobDrift) -> Iterator[str]:
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
        for window in median.windows:
            error = f"median error {100 * window.median_error:.1f} %"
            ratio = f"measured {window.ratio:.2f} of predicted"
            times = f"{window.first[:16]} to {window.last[:16]}"
            yield f"  {NOUNS[amount]}: {times}, {counted(window.jobs, 'job')}: {error}, {ratio}"
    for machine in drift.machines:
        yield (
            f"  machine {machine.host}: speed {machine.speed_before:.2f} as learned, "
            f"{machine.speed_now:.2f} in {counted(machine.jobs, 'job')} since"
        )
    for shift in drift.features[:LISTED]:
        yield (
            f"  {shift.name}: stability index {shift.corrected:.2f} "
            f"({shift.psi:.2f} less {shift.bias:.2f}, which chance alone gives)"
        )
    for note in drift.notes:
        yield f"  {note}"
