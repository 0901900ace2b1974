"""How many runs of each month stayed below the bound that had been predicted for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.job_drift import AMOUNTS, coverage_of, last_jobs
from voxcast.models.metrics import binomial_interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

_MONTH = slice(0, 7)  # of a time in ISO 8601


@dataclass(frozen=True)
class MonthlyCoverage:
    """Subjects of a month below the bound of a target.

    Attributes
    ----------
    month : str
        In which the runs started, such as ``2026-11``.
    basis : {"submission", "evaluation"}
        Jobs below the bound that they were submitted with, the newest of each subject; or unseen
        subjects all of whose runs were below the bound of the evaluation.
    stated : float
        Probability of the bound.
    below, subjects : int
        Subjects below it, and all.
    runs : int
        Runs where that is known.
    interval : tuple of float
        Exact (Clopper-Pearson) 95 % interval of the share.
    """

    month: str
    app: str
    target: str
    basis: str
    stated: float
    below: int
    subjects: int
    runs: int
    interval: tuple[float, float]


def monthly_coverage(runs: pd.DataFrame, evaluated: pd.DataFrame | None) -> list[MonthlyCoverage]:
    """Return the coverage by month, application and target.

    Parameters
    ----------
    runs, evaluated : DataFrame
        See `voxcast.analysis.run_outlines.run_outlines`; ``evaluated`` has the columns ``app``,
        ``subject``, ``runtime_s_actual`` and ``peak_rss_bytes_actual``, too.
    """
    rows = [*_of_jobs(runs)]
    if evaluated is not None and len(evaluated):
        rows += _of_evaluation(evaluated.merge(runs[["cell_key", "started_at"]], on="cell_key"))
    return sorted(rows, key=lambda row: (row.month, row.app, row.target, row.basis))


def _of_jobs(runs: pd.DataFrame) -> Iterator[MonthlyCoverage]:
    for app, runs_of_app in runs.groupby("app", sort=True):
        jobs = last_jobs(runs_of_app, len(runs_of_app))
        if not len(jobs):
            continue
        for month, jobs_of_month in jobs.groupby(jobs["started_at"].str[_MONTH]):
            for target in AMOUNTS:
                coverage = coverage_of(jobs_of_month, target)
                if coverage is not None:
                    n_runs = int(jobs_of_month[f"{target}_below"].notna().sum())
                    yield MonthlyCoverage(
                        str(month), str(app), target, "submission",
                        coverage.stated, coverage.below, coverage.subjects, n_runs,
                        coverage.interval,
                    )  # fmt: skip


def _of_evaluation(runs: pd.DataFrame) -> Iterator[MonthlyCoverage]:
    keys = [runs["app"], runs["started_at"].str[_MONTH], runs["stated"]]
    for (app, month, stated), runs_of_month in runs.groupby(keys):
        for target in AMOUNTS:
            is_below = runs_of_month[f"{target}_actual"] <= runs_of_month[f"{target}_upper"]
            by_subject = is_below.groupby(runs_of_month["subject"]).all()
            below, count = int(by_subject.sum()), len(by_subject)
            yield MonthlyCoverage(
                str(month), str(app), target, "evaluation", float(str(stated)), below, count,
                len(is_below), binomial_interval(below, count),
            )  # fmt: skip
