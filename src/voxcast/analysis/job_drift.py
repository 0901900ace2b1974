"""Whether the predictions that jobs were submitted with still hold, from the jobs themselves.

How many runs of each month stayed below the bound that had been predicted for them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.laws.intervals import Interval, clustered_mean
from voxcast.models.metrics import binomial_interval
from voxcast.models.speeds import sitting_mean

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from voxcast.models.speeds import RunResidual, Speeds
    from voxcast.serving.bundle import Bundle


LEVEL = 0.05  # probability that anything is called drifted where nothing is
TOLERANCE = 0.1  # of a median: less is the machines' everyday
ENOUGH_SUBJECTS = 19  # with fewer a bound of 95 % may hold for all by chance, or for none
LARGE_SHIFT = 0.2  # between distribution functions: less is everyday
Z_95 = 1.96
AMOUNTS = {"runtime_s": "timeout", "peak_rss_bytes": "out_of_memory"}


@dataclass(frozen=True)
class Coverage:
    """How many jobs stayed below the bound that was stated when they were submitted.

    Attributes
    ----------
    stated : float
        Probability of the bound.
    below, subjects : int
        The newest job of each subject counts.
    interval : tuple of float
        Exact (Clopper-Pearson) 95 % interval of the share.
    probability : float
        Of so few below if the bound holds; one-sided.
    """

    stated: float
    below: int
    subjects: int
    interval: tuple[float, float]
    probability: float
    drifted: bool = False


@dataclass(frozen=True)
class MedianDrift:
    """Predicted medians against the amounts used.

    Attributes
    ----------
    log_ratio : Interval
        Mean logarithm of measured over predicted, over subjects; the interval is that of the
        test, wider than 95 %.
    median_error : float
        Median of the absolute errors.
    """

    log_ratio: Interval
    jobs: int
    median_error: float
    drifted: bool


@dataclass(frozen=True)
class MachineDrift:
    """The speed of a machine as the model has it, and in the jobs since; 1 is the reference.

    Attributes
    ----------
    interval : tuple of float
        95 %, of the speed now; outside it the speed before is improbable. It has the scatter of
        days, and how well the speed before is known.
    """

    host: str
    jobs: int
    speed_before: float
    speed_now: float
    interval: tuple[float, float]
    probability: float
    drifted: bool = False


@dataclass(frozen=True)
class FeatureShift:
    """How a feature differs between the training runs and newer jobs.

    Attributes
    ----------
    distance : float
        Largest difference of the distribution functions, or half the sum of the differences of
        the shares of categories; 0 to 1.
    probability : float
        Of so large a distance by chance.
    """

    name: str
    distance: float
    probability: float
    shifted: bool


def feature_shifts(training: pd.DataFrame, new: pd.DataFrame, level: float) -> list[FeatureShift]:
    """Return the shifts of all features, the largest first.

    Numbers are compared by the test of Kolmogorov and Smirnov, categories by that of chi squared.

    Parameters
    ----------
    training, new : DataFrame
        One row for each subject, with the same columns of features.
    level : float
        Probability that any feature is called shifted where none is.
    """
    from scipy.stats import chi2_contingency, ks_2samp

    shifts = []
    for name in training.columns:
        before, after = training[name].dropna(), new[name].dropna()
        if before.empty or after.empty or pd.concat([before, after]).nunique() < 2:
            continue
        if pd.api.types.is_numeric_dtype(before):
            distance, probability = ks_2samp(before.astype(float), after.astype(float))
        else:
            counts = [rows.astype(str).value_counts() for rows in (before, after)]
            table = pd.concat(counts, axis=1).fillna(0).to_numpy()
            distance = np.abs(np.diff(table / table.sum(axis=0), axis=1)).sum() / 2
            probability = chi2_contingency(table).pvalue
        is_shifted = probability < level / len(training.columns) and distance >= LARGE_SHIFT
        shifts.append(FeatureShift(str(name), float(distance), float(probability), is_shifted))
    return sorted(shifts, key=lambda shift: -shift.distance)


@dataclass(frozen=True)
class JobDrift:
    """What drifted, over the last jobs of an application."""

    jobs: int
    subjects: int
    coverage: dict[str, Coverage]
    medians: dict[str, MedianDrift]
    machines: tuple[MachineDrift, ...] = ()
    features: tuple[FeatureShift, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def drifted(self) -> list[str]:
        """What drifted, in words."""
        return [
            *(f"the bound of {NOUNS[n]}" for n, c in self.coverage.items() if c.drifted),
            *(f"the median of {NOUNS[n]}" for n, m in self.medians.items() if m.drifted),
            *(f"the speed of machine {m.host}" for m in self.machines if m.drifted),
            *(f"the feature {shift.name}" for shift in self.features if shift.shifted),
        ]

    @property
    def verdict(self) -> str:
        """One of ``drifted``, ``fine`` and ``too little data``."""
        if self.drifted:
            return "drifted"
        return "fine" if self.subjects >= ENOUGH_SUBJECTS else "too little data"


NOUNS = {"runtime_s": "runtime", "peak_rss_bytes": "memory"}


def last_jobs(runs: pd.DataFrame, last: int) -> pd.DataFrame:
    """Return the newest jobs that carry a prediction, one row each with its last attempt.

    Adds the columns of the prediction, and ``runtime_s_below``, ``peak_rss_bytes_below``: whether
    it stayed below its bound, None where that is not known.

    Parameters
    ----------
    runs : DataFrame
        Runs of `voxcast.jobs.collect`, of one application.
    """
    records = []
    for run in runs.sort_values("started_at", kind="stable").to_dict("records"):
        labels = json.loads(run["labels_json"] or "{}")
        if "predicted_runtime_s" in labels:
            job = (labels.get("submission", ""), labels.get("task", run["cell_key"]))
            records.append({**labels, **run, "job": job})
    if not records:
        return pd.DataFrame(columns=[*runs.columns, "job"])
    jobs = pd.DataFrame(records)
    decisive = jobs["outcome"].isin(["completed", *AMOUNTS.values()])
    jobs = jobs[decisive].drop_duplicates("job", keep="last").tail(last)
    for amount, killed in AMOUNTS.items():
        jobs[f"{amount}_below"] = [_below(job, amount, killed) for job in jobs.to_dict("records")]
    return jobs.reset_index(drop=True)


def _below(job: Mapping[Hashable, Any], amount: str, killed: str) -> bool | None:
    bound, used = job.get(f"upper_{amount}"), job[amount]
    if bound is None or pd.isna(bound) or pd.isna(used):
        return None
    is_below = float(used) <= float(bound)
    if job["outcome"] == "completed":
        return is_below
    # Of a killed job only a lower bound is known.
    return False if job["outcome"] == killed and not is_below else None


def coverage_of(jobs: pd.DataFrame, amount: str) -> Coverage | None:
    """Return the coverage of the stated bounds of an amount; None if no job shows it."""
    from scipy.stats import binom

    if "confidence" not in jobs:
        return None
    column = f"{amount}_below"
    told_of = jobs[jobs[column].notna() & jobs["confidence"].notna()]
    newest = told_of[~_subjects(told_of).duplicated(keep="last")]
    if newest.empty:
        return None
    # Where policies differed, the most frequent one is judged.
    stated = float(newest["confidence"].mode().iloc[0])
    same = newest[newest["confidence"] == stated]
    below, count = int(same[column].astype(bool).sum()), len(same)
    probability = float(binom.cdf(below, count, stated))
    return Coverage(stated, below, count, binomial_interval(below, count), probability)


def medians_of(jobs: pd.DataFrame, amount: str, level: float) -> MedianDrift | None:
    """Return the errors of the medians of an amount over completed jobs; None without any."""
    completed = jobs[jobs["outcome"] == "completed"]
    predicted = completed.get(f"predicted_{amount}", pd.Series(np.nan, completed.index))
    used = completed[amount].astype(float)
    usable = (predicted > 0) & (used > 0)
    completed, logs = (
        completed[usable],
        np.log((used[usable] / predicted[usable]).to_numpy(dtype=float)),
    )
    if not len(logs):
        return None
    interval = clustered_mean(logs, _subjects(completed).tolist(), confidence=1 - level)
    tolerance = math.log1p(TOLERANCE)
    drifted = interval.bounded and (interval.low > tolerance or interval.high < -tolerance)
    median_error = float(np.median(np.abs(np.expm1(-logs))))
    return MedianDrift(interval, len(logs), median_error, drifted)


def memory_notes(jobs: pd.DataFrame, usual: str) -> list[str]:
    """Return a line if memory of jobs was measured by another method than in training runs.

    Examples
    --------
    >>> memory_notes(pd.DataFrame({"memory_method": ["slurm_maxrss", "", "cgroup2"]}), "cgroup2")
    ['memory of jobs is by slurm_maxrss, of training runs by cgroup2, which count differently']
    >>> memory_notes(pd.DataFrame({"memory_method": ["cgroup2"]}), "cgroup2")
    []
    """
    methods = ", ".join(sorted(set(jobs["memory_method"]) - {"", usual}))
    line = f"memory of jobs is by {methods}, of training runs by {usual}, which count differently"
    return [line] if methods and usual else []


def machine_drift(
    host: str, speeds: Speeds, residuals: Sequence[RunResidual], level: float
) -> MachineDrift:
    """Compare the speed of a machine in jobs with the model's estimate.

    Days differ by the spread that the model learned, so that one day shows little.

    Parameters
    ----------
    residuals : sequence of RunResidual
        Of the jobs, at the reference speed.
    """
    from scipy.stats import norm

    log_speeds = [-run.log_residual for run in residuals]
    mean = sitting_mean(
        log_speeds, [run.subject for run in residuals], speeds.noise_sd, speeds.subject_sd
    )
    days = len({run.started_at[:10] for run in residuals})
    before = speeds.estimate(host)
    machine_sd = math.sqrt(max(before.sd**2 - speeds.sitting_spread**2, 0.0))
    sd = math.hypot(machine_sd, speeds.sitting_spread / days**0.5, mean.variance**0.5)
    probability = 2 * float(norm.sf(abs(mean.log_speed - before.log_speed) / sd))
    change = abs(mean.log_speed - before.log_speed)
    return MachineDrift(
        host, len(residuals), math.exp(before.log_speed), math.exp(mean.log_speed),
        (math.exp(mean.log_speed - Z_95 * sd), math.exp(mean.log_speed + Z_95 * sd)), probability,
        probability < level and change > math.log1p(TOLERANCE),
    )  # fmt: skip


def drift_of(
    jobs: pd.DataFrame, table: pd.DataFrame, bundle: Bundle, name: str, notes: Sequence[str]
) -> JobDrift:
    """Return what drifted in the last jobs of an application.

    Parameters
    ----------
    jobs : DataFrame
        Of `last_jobs`.
    table : DataFrame
        All runs on record that may train.
    bundle : Bundle
        The champion.
    notes : sequence of str
        What else is to be said.
    """
    from voxcast.features.rows import feature_names

    learned_from = table["cell_key"].isin(bundle.trained_on(name).cell_keys)
    since = table[table["cell_key"].isin(jobs["cell_key"]) & ~learned_from]
    hosts = sorted(set(since["host_id"]) - {""})
    # Each is tested at this level, so that all together are wrong with probability `LEVEL`.
    level = LEVEL / (2 * len(AMOUNTS) + len(hosts) + 1)
    coverage = {a: c for a in AMOUNTS if (c := coverage_of(jobs, a)) is not None}
    coverage = {a: replace(c, drifted=c.probability < level) for a, c in coverage.items()}
    medians = {a: m for a in AMOUNTS if (m := medians_of(jobs, a, level)) is not None}
    shifts: list[FeatureShift] = []
    if len(since) and learned_from.any():
        names = feature_names(table)
        before, after = (
            rows.drop_duplicates("subject")[names].drop(columns="app")
            for rows in (table[learned_from], since)
        )
        shifts = feature_shifts(before, after, level)
    return JobDrift(
        len(jobs), int(_subjects(jobs).nunique()), coverage, medians,
        tuple(_machines(bundle, name, since, hosts, level)), tuple(shifts), tuple(notes),
    )  # fmt: skip


def _machines(
    bundle: Bundle, name: str, since: pd.DataFrame, hosts: list[str], level: float
) -> list[MachineDrift]:
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


def _subjects(jobs: pd.DataFrame) -> pd.Series:
    """Return the subject of each job; one without is a subject of its own."""
    return jobs["subject"].where(jobs["subject"] != "", jobs["cell_key"])


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
        See `voxcast.analysis.runs_on_record.run_outlines`; ``evaluated`` has the columns ``app``,
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
