"""The speed of a machine after further runs.

An observation is the measured CPU time of a run against the model's prediction on the reference
machine. Runs of one sitting share its deviation, so that many runs in one sitting leave it
uncertain how fast the machine is in another. Runs that disagree more than the model expects tell
less, and a sitting far from all that was known before is not believed until another confirms it.

``mean of a sitting = machine + deviation + error``. The mean of a sitting is Huber's M-estimator
of location (Annals of Mathematical Statistics 1964): a run far from the others hardly counts. The
prior of the machine is Student's t, so that many sittings that agree outweigh a prior far from
them, and what sittings differ by is estimated with it. Both are variances with a scaled inverse
chi-squared prior, estimated by expectation maximisation (Lange, Little and Taylor, JASA 1989).

A machine may have become faster or slower for good, as by another governor or firmware. Its days
on record are split in two where they differ most. The split is believed where a t test with one
variance for both parts is significant, corrected by Bonferroni for the number of possible splits
(Student 1908; Hawkins, JASA 1977). Days before it then tell nothing of the days to come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.speed.speeds import (
    HIGHEST_SD,
    MachineSpeed,
    SittingSpeed,
    SpeedEstimate,
    Speeds,
    by_day,
    day_of,
)

if TYPE_CHECKING:
    from voxcast.models.forecaster import Prediction

APP_SPREAD = 0.1  # between the speeds of one machine for several applications
# A sitting conflicts with all that is known beside it from so many standard deviations on.
CONFLICT = 4.0
HUBER = 1.5  # standard deviations, beyond which a run counts less
DISTURBED = 3.0  # standard deviations, beyond which a run says nothing of the speed
MAD_TO_SD = 1.4826  # of a normal distribution
# The expected noise counts as so many runs: three runs alone tell little of their noise.
NOISE_FREEDOM = 3.0
# The runs of a sitting disagree if their variance is four times the expected one, or more than a
# quarter of them are disturbed.
LARGEST_EXCESS, LARGEST_DISTURBED = 4.0, 0.25
MACHINE_FREEDOM = 4.0  # of the prior speed
ITERATIONS, TOLERANCE = 200, 1e-6
SMALLEST_SD = 1e-4
SIGNIFICANCE = 0.01
MINIMUM_DAYS = 2  # on both sides: a single day is odd by itself
MINIMUM_RUNS = 3  # since the change: fewer may all be disturbed


@dataclass(frozen=True)
class SittingMean:
    """The mean logarithmic speed of the runs of a sitting, and the variance of that mean.

    ``agree`` is whether the runs differ about as much as the model expects; if not, its bounds do
    not hold for runs like these, however well their mean is known.
    """

    log_speed: float
    variance: float
    agree: bool = True


def sitting_mean(
    log_speeds: Sequence[float], subjects: Sequence[str], noise_sd: float, subject_sd: float
) -> SittingMean:
    """Return the mean speed of a sitting.

    Parameters
    ----------
    log_speeds : sequence of float, length n
        Logarithmic speed by each run.
    subjects : sequence of str, length n
        Subject of each run; runs of one share its deviation.
    noise_sd, subject_sd : float
        Expected standard deviations of runs, and of subjects. Where the runs differ by more than
        that, the variance is taken from their differences.
    """
    values = np.array(log_speeds, dtype=float)
    expected_sd = math.hypot(noise_sd, subject_sd)
    mean = float(np.median(values))
    scale = max(expected_sd, MAD_TO_SD * float(np.median(np.abs(values - mean))))
    limit = HUBER * scale
    for _ in range(20):
        weights = limit / np.maximum(np.abs(values - mean), limit)
        mean = float(weights @ values / weights.sum())
    telling = np.abs(values - mean) <= DISTURBED * scale
    runs = max(int(telling.sum()), 1)
    different = max(len({subjects[n] for n in np.flatnonzero(telling)}), 1)
    excess = 1.0
    if len(values) > 1:
        squares = float((np.clip(values - mean, -limit, limit) ** 2).sum())
        # Few runs show their noise badly, and the model's noise is a lower bound.
        freedom = NOISE_FREEDOM + len(values) - 1
        observed = (NOISE_FREEDOM * expected_sd**2 + squares) / freedom
        excess = max(observed / expected_sd**2, 1.0) if expected_sd > 0 else 1.0
    variance = excess * (noise_sd**2 / runs + subject_sd**2 / different)
    disturbed = 1 - runs / len(values)
    return SittingMean(mean, variance, excess <= LARGEST_EXCESS and disturbed <= LARGEST_DISTURBED)


def posterior(
    prior: SpeedEstimate,
    means: Mapping[str, SittingMean],
    days: Mapping[str, str],
    spread: float,
    freedom: float,
) -> tuple[SpeedEstimate, dict[str, SpeedEstimate], float]:
    """Return the speed of a machine and of each of its sittings, and what sittings differ by.

    Parameters
    ----------
    prior : SpeedEstimate
        Of the machine.
    means : mapping of str to SittingMean
        By sitting.
    days : mapping of str to str
        Day of each sitting. Sittings of one day are much alike, so that a day counts once where
        the spread is estimated.
    spread, freedom : float
        Standard deviation between sittings, and its degrees of freedom, before these.
    """
    log_speeds = np.array([mean.log_speed for mean in means.values()])
    errors = np.array([mean.variance for mean in means.values()])
    codes = np.unique([days[name] for name in means], return_inverse=True)[1]
    counts = np.bincount(codes) if len(means) else np.zeros(0)
    prior_variance = max(prior.sd, SMALLEST_SD) ** 2
    spread_variance = max(spread, SMALLEST_SD) ** 2
    between, widening = spread_variance, 1.0
    for _ in range(ITERATIONS if len(means) else 1):
        # The machine, its sittings integrated out.
        weights = 1 / (between + errors)
        variance = 1 / (1 / (widening * prior_variance) + weights.sum())
        mean = variance * (
            prior.log_speed / (widening * prior_variance) + float(weights @ log_speeds)
        )
        share = between * weights  # of the distance from the machine, in each sitting
        deviations = share * (log_speeds - mean)
        uncertain = share * errors + share**2 * variance
        if not len(means):
            break
        squares = np.bincount(codes, deviations**2 + uncertain) / counts
        last = between
        between = (freedom * spread_variance + squares.sum()) / (freedom + len(counts))
        distance = ((mean - prior.log_speed) ** 2 + variance) / prior_variance
        widening = max((MACHINE_FREEDOM + distance) / (MACHINE_FREEDOM + 1), 1.0)
        if abs(between - last) < TOLERANCE * last:
            break
    sittings = {
        name: SpeedEstimate(
            float(mean + share[n] * (log_speeds[n] - mean)),
            float(share[n] * errors[n] + (1 - share[n]) ** 2 * variance) ** 0.5,
        )
        for n, name in enumerate(means)
    }
    machine = SpeedEstimate(float(mean), float(variance) ** 0.5)
    return machine, sittings, float(between) ** 0.5


@dataclass(frozen=True)
class MeasuredDay:
    """The mean logarithmic speed of a machine on a day (ISO), its variance, and runs."""

    day: str
    log_speed: float
    variance: float
    runs: int


def measured_days(sittings: Iterable[SittingSpeed]) -> list[MeasuredDay]:
    """Return the days of sittings; sittings of one day are alike, so that each counts the same."""
    return [
        MeasuredDay(
            day_of(of_day[0].last_at),
            float(np.mean([sitting.log_speed for sitting in of_day])),
            sum(sitting.sd**2 for sitting in of_day) / len(of_day) ** 2,
            sum(sitting.runs for sitting in of_day),
        )
        for of_day in by_day(sittings)
    ]


def level_start(days: Sequence[MeasuredDay], spread: float, freedom: float) -> str:
    """Return the first day at the present level of a machine, empty if it never changed.

    Parameters
    ----------
    days : sequence of MeasuredDay
        In any order, each day once. Days of unknown date (empty) are left out.
    spread : float
        Standard deviation between the days at one level, before these.
    freedom : float
        Degrees of freedom of its estimate.

    Examples
    --------
    >>> speeds = (0.02, -0.03, 0.01, -0.41, -0.38)
    >>> days = [MeasuredDay(f"2026-01-0{n}", s, 1e-4, 6) for n, s in enumerate(speeds, 1)]
    >>> level_start(days, 0.05, 4.0)
    '2026-01-04'
    >>> level_start(days[:4], 0.05, 4.0)
    ''
    """
    from scipy.special import stdtr

    left = sorted((day for day in days if day.day), key=lambda day: day.day)
    start = ""
    while True:
        log_speeds = np.array([day.log_speed for day in left])
        count, error = len(left), float(np.mean([day.variance for day in left] or [0.0]))
        runs_since = np.cumsum([day.runs for day in left][::-1])[::-1]
        splits = [
            n
            for n in range(MINIMUM_DAYS, count - MINIMUM_DAYS + 1)
            if runs_since[n] >= MINIMUM_RUNS
        ]
        if not splits:
            return start
        by_split = []
        for n in splits:
            squares = n * log_speeds[:n].var() + (count - n) * log_speeds[n:].var()
            # The variance before the data has no error of measurement in it; theirs has.
            variance = (freedom * (spread**2 + error) + squares) / (freedom + count - 2)
            gap = abs(log_speeds[:n].mean() - log_speeds[n:].mean())
            by_split.append(gap / np.sqrt(variance * (1 / n + 1 / (count - n))))
        best = int(np.argmax(by_split))
        probability = 2 * float(stdtr(freedom + count - 2, -by_split[best])) * len(splits)
        if probability > SIGNIFICANCE:
            return start
        left = left[splits[best] :]  # it may have changed again since
        start = left[0].day


@dataclass(frozen=True)
class RunResidual:
    """A run on a machine: logarithm of measured over predicted CPU time at the reference speed."""

    sitting: str
    subject: str
    started_at: str
    log_residual: float


def run_residuals(
    runs: Iterable[Mapping[Any, Any]], predictions: Iterable[Prediction]
) -> list[RunResidual]:
    """Return the residuals of runs whose prediction is not out of range.

    Parameters
    ----------
    runs : iterable of mapping
        With ``sitting subject started_at cpu_s``.
    predictions : iterable of Prediction
        Of these runs, at the average speed of the training runs.
    """
    return [
        RunResidual(
            str(run["sitting"]),
            str(run["subject"]),
            str(run["started_at"]),
            math.log(run["cpu_s"] / prediction.quantiles["cpu_s"][1]),
        )
        for run, prediction in zip(runs, predictions, strict=True)
        if not prediction.out_of_range
    ]


def updated(
    speeds: Speeds,
    host: str,
    residuals: Sequence[RunResidual],
    *,
    elsewhere: SpeedEstimate | None = None,
    host_class: str = "",
) -> Speeds:
    """Return the speeds with one machine's updated by runs that were not learned from.

    Parameters
    ----------
    residuals : sequence of RunResidual
        Runs in sittings that ``speeds`` does not know.
    elsewhere : SpeedEstimate, optional
        Speed of the machine for other applications, where this one was not measured on it.
    host_class : str
        Of a machine that is new.
    """
    machine = speeds.machines.get(host)
    if machine is None:
        prior = elsewhere or speeds.unknown
        machine = MachineSpeed(prior.log_speed, prior.sd, 0, {}, host_class)
    by_sitting: dict[str, list[RunResidual]] = {}
    for residual in residuals:
        by_sitting.setdefault(residual.sitting, []).append(residual)
    observed = {
        name: sitting_mean(
            [-run.log_residual for run in runs], [run.subject for run in runs],
            speeds.noise_sd, speeds.subject_sd,
        )
        for name, runs in by_sitting.items()
    }  # fmt: skip
    last_at = {name: max(run.started_at for run in runs) for name, runs in by_sitting.items()}
    sittings = dict(machine.sittings) | {
        name: SittingSpeed(
            mean.log_speed, mean.variance**0.5, len(by_sitting[name]), last_at[name]
        )
        for name, mean in observed.items()
    }
    days = {name: day_of(sitting.last_at) for name, sitting in sittings.items()}
    spread = speeds.sitting_spread, speeds.sitting_freedom
    before = SpeedEstimate(machine.log_speed, machine.sd)
    present = {name: sitting for name, sitting in sittings.items() if days[name] >= machine.since}
    level = {name: mean for name, mean in observed.items() if name in present}
    since = level_start(measured_days(present.values()), *spread)
    if since:  # the machine was learned at another level
        before = replace(before, sd=math.hypot(before.sd, speeds.unknown.sd))
        level = {
            name: observed.get(name) or SittingMean(sitting.log_speed, sitting.sd**2)
            for name, sitting in present.items()
            if days[name] >= since
        }
    on_it, in_sittings, _ = posterior(before, level, days, *spread)
    is_doubtful = False
    # In the order of time: the last sitting shows whether the machine is in doubt now.
    for name in sorted(level.keys() & observed.keys(), key=last_at.__getitem__):
        values, here = observed[name], in_sittings[name]
        others = {other: mean for other, mean in level.items() if other != name}
        beside, _, between = posterior(before, others, days, *spread)
        sd = math.hypot(beside.sd, between, values.variance**0.5)
        gap = abs(values.log_speed - beside.log_speed)
        is_doubtful = gap > CONFLICT * sd or not values.agree
        here = _doubted(here) if is_doubtful else here
        sittings[name] = replace(sittings[name], log_speed=here.log_speed, sd=here.sd)
    on_it = _doubted(on_it) if is_doubtful else on_it
    machine = replace(
        machine, log_speed=on_it.log_speed, sd=on_it.sd, runs=machine.runs + len(residuals),
        sittings=sittings, since=since or machine.since,
    )  # fmt: skip
    return with_machines(speeds, {host: machine})


def with_machines(speeds: Speeds, machines: Mapping[str, MachineSpeed]) -> Speeds:
    """Return speeds with some machines replaced or added.

    The spread between sittings is estimated again, with the evidence of their further days of it.
    """
    squares, days = 0.0, 0
    for host, machine in machines.items():
        before = speeds.machines.get(host)
        earlier = {} if before is None else before.sittings
        levels = machine.levels()
        for level in levels:
            further = by_day(sitting for name, sitting in level.items() if name not in earlier)
            centre = machine.log_speed
            if level is not levels[-1]:  # before a lasting change
                centre = float(np.mean([sitting.log_speed for sitting in level.values()] or [0.0]))
            squares += sum(
                float(np.mean([(sitting.log_speed - centre) ** 2 for sitting in sittings]))
                for sittings in further
            )
            # The first names the machine.
            days += len(further) - (not level.keys() & earlier.keys() and bool(further))
    freedom = speeds.sitting_freedom
    variance = (freedom * speeds.sitting_spread**2 + squares) / (freedom + days)
    return replace(speeds, machines={**speeds.machines, **machines}, sitting_spread=variance**0.5)


def for_another_application(estimates: Sequence[SpeedEstimate]) -> SpeedEstimate | None:
    """Return the evidence of a machine's speeds for some applications tell of another one.

    None if there are none.
    """
    if not estimates:
        return None
    weights = np.array([1 / (estimate.sd**2 + APP_SPREAD**2) for estimate in estimates])
    mean = weights @ [estimate.log_speed for estimate in estimates] / weights.sum()
    return SpeedEstimate(float(mean), math.hypot(APP_SPREAD, float(1 / weights.sum()) ** 0.5))


def _doubted(estimate: SpeedEstimate) -> SpeedEstimate:
    """Return an estimate too uncertain for a calibrated bound."""
    return replace(estimate, sd=math.hypot(estimate.sd, HIGHEST_SD))
