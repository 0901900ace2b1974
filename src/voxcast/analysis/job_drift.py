"""Whether the predictions that jobs were submitted with still hold, from the jobs themselves.

How many runs of each month stayed below the bound that had been predicted for them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.laws.intervals import Interval, clustered_mean, exponential
from voxcast.models.metrics import binomial_interval
from voxcast.models.speeds import sitting_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.serving.bundle import Bundle


LEVEL = 0.05  # probability that anything is called drifted where nothing is
TOLERANCE = 0.1  # of a median: less is the machines' everyday
ENOUGH_SUBJECTS = 19  # with fewer a bound of 95 % may hold for all by chance, or for none
LARGE_SHIFT = 0.2  # between distribution functions: less is everyday
Z_95 = 1.96
AMOUNTS = {"runtime_s": "timeout", "peak_rss_bytes": "out_of_memory"}
NOUNS = {"runtime_s": "runtime", "peak_rss_bytes": "memory"}
# The subject of each kind of check, and the numbers that it compares.
KINDS = {
    "bound": ("the bound of {}", "share of subjects below it"),
    "median": ("the median of {}", "measured over predicted"),
    "speed": ("the speed of machine {}", "speed"),
    "feature": ("the feature {}", "distance of its distributions"),
}
MONTHLY = ["month", "app", "target", "basis", "stated"]


@dataclass(frozen=True)
class Check:
    """One comparison of the last jobs with the model.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    name : str
        The amount, machine or feature.
    expected : float
        Probability of the bound; 1 for a median; the speed of the machine as learned, where 1 is
        the reference; 0 for the distance of distributions.
    observed : Interval
        From the jobs. Share: the newest job of each subject counts, with the exact interval
        (Clopper-Pearson) of 95 %. Median: mean of logarithms over subjects, with the interval of
        the test, wider than 95 %. Speed: with the scatter of days, and how well the speed before
        is known; 95 %. Distance: largest difference of the distribution functions, or half the
        sum of the differences of the shares of categories.
    drifted : bool
        Whether they differ by more than chance, and more than every day.
    """

    kind: str
    name: str
    expected: float
    observed: Interval
    drifted: bool

    @property
    def title(self) -> str:
        """The check, in words."""
        return KINDS[self.kind][0].format(NOUNS.get(self.name, self.name))


@dataclass(frozen=True)
class JobDrift:
    """What drifted, over the last jobs of an application."""

    jobs: int
    subjects: int
    checks: list[Check]
    notes: list[str]

    @property
    def drifted(self) -> list[str]:
        """What drifted, in words."""
        return [check.title for check in self.checks if check.drifted]

    @property
    def verdict(self) -> str:
        """One of ``drifted``, ``fine`` and ``too little data``."""
        if self.drifted:
            return "drifted"
        return "fine" if self.subjects >= ENOUGH_SUBJECTS else "too little data"


def drift_of(
    jobs: pd.DataFrame, table: pd.DataFrame, bundle: Bundle, name: str, notes: list[str]
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
    notes : list of str
        What else is to be said.
    """
    from voxcast.features.rows import feature_names

    learned_from = table["cell_key"].isin(bundle.trained_on(name).cell_keys)
    since = table[table["cell_key"].isin(jobs["cell_key"]) & ~learned_from]
    hosts = sorted(set(since["host_id"]) - {""})
    # Each is tested at this level, so that all together are wrong with probability `LEVEL`.
    level = LEVEL / (2 * len(AMOUNTS) + len(hosts) + 1)
    checks = [*bounds(jobs, level), *medians(jobs, level)]
    checks += speeds(bundle, name, since, hosts, level)
    if len(since) and learned_from.any():
        names = feature_names(table)
        before, after = (
            rows.drop_duplicates("subject")[names].drop(columns="app")
            for rows in (table[learned_from], since)
        )
        checks += feature_shifts(before, after, level)
    return JobDrift(len(jobs), int(_subjects(jobs).nunique()), checks, notes)


def last_jobs(runs: pd.DataFrame, last: int) -> pd.DataFrame:
    """Return the newest jobs that carry a prediction, one row each with its last attempt.

    Adds the columns of the prediction, and ``runtime_s_below``, ``peak_rss_bytes_below``: whether
    it stayed below its bound, missing where that is not known.

    Parameters
    ----------
    runs : DataFrame
        Runs of `voxcast.jobs.collect`.
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
        used, bound = _numbers(jobs, amount), _numbers(jobs, f"upper_{amount}")
        is_below = used <= bound
        # Of a killed job only a lower bound is known.
        is_over = (jobs["outcome"] == killed) & ~is_below
        is_known = used.notna() & bound.notna() & ((jobs["outcome"] == "completed") | is_over)
        jobs[f"{amount}_below"] = is_below.astype(object).where(is_known)
    return jobs.reset_index(drop=True)


def _numbers(jobs: pd.DataFrame, name: str) -> pd.Series[float]:
    """Return a column as numbers; missing ones where there is no such column."""
    return pd.to_numeric(jobs.reindex(columns=[name])[name], errors="coerce").astype(float)


def _subjects(jobs: pd.DataFrame) -> pd.Series:
    """Return the subject of each job; one without is a subject of its own."""
    return jobs["subject"].where(jobs["subject"] != "", jobs["cell_key"])


def bounds(jobs: pd.DataFrame, level: float) -> Iterator[Check]:
    """Yield the coverage of the stated bounds of each amount that some jobs show."""
    from scipy.stats import binom

    for amount in AMOUNTS:
        is_below, stated = _numbers(jobs, f"{amount}_below"), _numbers(jobs, "confidence")
        bounded = jobs[is_below.notna() & stated.notna()]
        newest = bounded.index[~_subjects(bounded).duplicated(keep="last")]
        if newest.empty:
            continue
        # Where policies differed, the most frequent one is judged.
        stated_level = float(stated[newest].mode().iloc[0])
        same = newest[stated[newest] == stated_level]
        below, count = int(is_below[same].sum()), len(same)
        observed = Interval(below / count, *binomial_interval(below, count), count)
        yield Check(
            "bound",
            amount,
            stated_level,
            observed,
            bool(binom.cdf(below, count, stated_level) < level),
        )


def medians(jobs: pd.DataFrame, level: float) -> Iterator[Check]:
    """Yield the errors of the medians of each amount over the completed jobs."""
    completed, tolerance = jobs[jobs["outcome"] == "completed"], math.log1p(TOLERANCE)
    for amount in AMOUNTS:
        ratios = _numbers(completed, amount) / _numbers(completed, f"predicted_{amount}")
        usable = (ratios > 0) & np.isfinite(ratios)
        if usable.any():
            subjects = _subjects(completed[usable]).tolist()
            logs = clustered_mean(np.log(ratios[usable]), subjects, confidence=1 - level)
            is_off = logs.bounded and (logs.low > tolerance or logs.high < -tolerance)
            yield Check("median", amount, 1.0, exponential(logs), is_off)


def speeds(
    bundle: Bundle, name: str, since: pd.DataFrame, hosts: list[str], level: float
) -> Iterator[Check]:
    """Yield the speed of each machine in newer jobs, and the model's estimate.

    Days differ by the spread that the model learned, so that one day shows little.
    """
    from scipy.stats import norm

    from voxcast.features.rows import rows_of
    from voxcast.models.point_model import Query
    from voxcast.models.speeds import residuals_of

    forecaster = bundle.forecaster(name)
    learned_speeds = forecaster.speeds
    for host in hosts if learned_speeds is not None else ():
        on_host = since[since["host_id"] == host]
        # At the average speed of the training runs.
        predictions = forecaster.predict([Query(row) for row in rows_of(on_host)])
        residuals = residuals_of(on_host.to_dict("records"), predictions)
        if not residuals or learned_speeds is None:
            continue
        before, spread = learned_speeds.estimate(host), learned_speeds.sitting_spread
        mean = sitting_mean(
            [-run.log_residual for run in residuals], [run.subject for run in residuals],
            learned_speeds.noise_sd, learned_speeds.subject_sd,
        )  # fmt: skip
        days = len({run.started_at[:10] for run in residuals})
        machine_sd = math.sqrt(max(before.sd**2 - spread**2, 0.0))
        sd = math.hypot(machine_sd, spread / days**0.5, mean.variance**0.5)
        change = abs(mean.log_speed - before.log_speed)
        is_improbable = 2 * float(norm.sf(change / sd)) < level
        low, high = mean.log_speed - Z_95 * sd, mean.log_speed + Z_95 * sd
        observed = exponential(Interval(mean.log_speed, low, high, len(residuals)))
        has_drifted = is_improbable and change > math.log1p(TOLERANCE)
        yield Check("speed", host, math.exp(before.log_speed), observed, has_drifted)


def feature_shifts(training: pd.DataFrame, new: pd.DataFrame, level: float) -> list[Check]:
    """Return the shifts of all features, the largest first.

    Numbers are compared by the test of Kolmogorov and Smirnov, categories by chi squared.

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
        observed = Interval(float(distance), math.nan, math.nan, len(after))
        shifts.append(Check("feature", str(name), 0.0, observed, bool(is_shifted)))
    return sorted(shifts, key=lambda shift: -shift.observed.value)


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


def monthly_coverage(runs: pd.DataFrame, evaluated: pd.DataFrame | None) -> pd.DataFrame:
    """Return how many subjects of each month were below the bounds of their predictions.

    Parameters
    ----------
    runs, evaluated : DataFrame
        See `voxcast.analysis.runs_on_record.run_outlines`; ``evaluated`` has the columns ``app``,
        ``subject``, ``runtime_s_actual`` and ``peak_rss_bytes_actual``, too.

    Returns
    -------
    DataFrame
        A row for each month, such as ``2026-11``, application, target, probability ``stated`` and
        ``basis``: ``submission`` for jobs below the bound that they were submitted with, the
        newest of each subject; ``evaluation`` for unseen subjects all of whose runs were below
        the bound of the evaluation. ``below`` of ``subjects`` are ``share_within``, with the exact
        (Clopper-Pearson) 95 % interval ``low`` to ``high``; ``runs`` is their number.
    """
    jobs = last_jobs(runs, len(runs))
    tables = [
        jobs.assign(
            target=target, basis="submission", stated=_numbers(jobs, "confidence"),
            subject=_subjects(jobs), is_below=_numbers(jobs, f"{target}_below"),
        )
        for target in AMOUNTS
    ]  # fmt: skip
    if evaluated is not None and len(evaluated):
        on_record = evaluated.merge(runs[["cell_key", "started_at"]], on="cell_key")
        tables += [
            on_record.assign(
                target=target, basis="evaluation",
                is_below=(on_record[f"{target}_actual"] <= on_record[f"{target}_upper"]) * 1.0,
            )
            for target in AMOUNTS
        ]  # fmt: skip
    answers = pd.concat(tables).assign(month=lambda rows: rows["started_at"].str[:7])
    answers = answers[[*MONTHLY, "subject", "is_below"]].dropna()
    by_subject = answers.groupby([*MONTHLY, "subject"])["is_below"].agg(["last", "min", "size"])
    by_subject = by_subject.reset_index()
    by_subject["below"] = by_subject["last"].where(
        by_subject["basis"] == "submission", by_subject["min"]
    )
    months = by_subject.groupby(MONTHLY).agg(
        below=("below", "sum"), subjects=("below", "size"), runs=("size", "sum")
    )
    months = months.astype(int).reset_index()
    counts = zip(months["below"], months["subjects"], strict=True)
    ends = [binomial_interval(below, subjects) for below, subjects in counts]
    return months.assign(
        share_within=months["below"] / months["subjects"],
        low=[low for low, _ in ends],
        high=[high for _, high in ends],
    )
