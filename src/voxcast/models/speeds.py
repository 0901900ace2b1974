"""The speeds of machines for one application: the estimate of each, and of machines not measured.

``log cpu_s = work − log speed``. A machine has a speed of its own, and each sitting on it deviates
from that. The reference machine, on which most runs were made, has the logarithmic speed 0. What
is not known of a speed is its standard deviation, which widens the bounds of predictions. What
sittings differ by is itself estimated from few days, so a sitting to come has the heavy tails of
Student's t.

Further runs update the speed of their machine. An observation is the measured CPU time of a run
against the model's prediction on the reference machine. Runs of one sitting share its deviation,
so that many runs in one sitting leave it uncertain how fast the machine is in another. Runs that
disagree more than the model expects tell less, and a sitting far from all that was known before is
not believed until another confirms it.

``mean of a sitting = machine + deviation + error``. The mean of a sitting is Huber's M-estimator
of location (Annals of Mathematical Statistics 1964): an outlying run hardly counts. The
prior of the machine is Student's t, so that many sittings that agree outweigh a prior far from
them, and what sittings differ by is estimated with it. Both are variances with a scaled inverse
chi-squared prior, estimated by expectation maximisation (Lange, Little and Taylor, JASA 1989).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxcast.features.rows import KERNEL_S

if TYPE_CHECKING:
    from voxcast.models.forecaster import Prediction


# A machine is known from so many runs on (fewer may all be disturbed), once its speed is uncertain
# by no more than 5 %, or 1.5 times what sittings on one machine differ by.
MINIMUM_RUNS, LARGEST_SD, RELATIVE_SD = 3, 0.05, 1.5
# Sittings on record differ by 7 to 15 %. Where they differ by far more, the next one may be of any
# kind, and no bound is calibrated.
HIGHEST_SD = 0.2
# What sittings differ by counts as known from so many days before the data, as in
# `voxcast.models.speed_estimation`.
PRIOR_DAYS = 2.0
# Before the data, machines of one host class or node type differ by this much. The prior counts as
# two machines. With fewer than three on record another of them is as good as not measured.
CLASS_SPREAD, PRIOR_MACHINES, MINIMUM_MACHINES = 0.1, 2.0, 3
# The source of a speed, from the most certain: runs in the sitting, a reading of the kernels, runs
# on the machine, or on others of its kind; nothing, for a machine that is not known.
Basis = Literal["sitting", "reading", "machine", "kind", ""]
# After its last run. On record, runs four hours apart differ by a quarter more than runs minutes
# apart, and runs of another day by three times as much.
SITTING_LASTS = timedelta(hours=4)


@dataclass(frozen=True)
class SpeedEstimate:
    """A logarithmic speed and its standard deviation.

    ``freedom`` is the number of degrees of freedom where the standard deviation is estimated from
    few days, so that the distribution is Student's t scaled by it; None for a normal one.
    ``basis`` is its source.
    """

    log_speed: float
    sd: float
    freedom: float | None = None
    basis: Basis = ""

    def deviation(self, probability: float) -> float:
        """Return the quantile of the logarithmic speed, less its median."""
        if self.freedom is None:
            return NormalDist().inv_cdf(probability) * self.sd
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, probability)) * self.sd

    def speed(self, probability: float) -> float:
        """Return the quantile of the speed, as a multiple of the reference machine's."""
        return math.exp(self.log_speed + self.deviation(probability))


@dataclass(frozen=True)
class SittingSpeed:
    """The speed of a machine in one sitting; ``last_at`` is the start of its last run (ISO)."""

    log_speed: float
    sd: float
    runs: int
    last_at: str = ""


@dataclass(frozen=True)
class MachineSpeed:
    """The speed of a machine: its own, without the deviation of a sitting, and by sitting.

    ``host_class`` and ``node_type`` are taken from its runs, empty if unknown. ``by_kernels`` is
    its speed in `Gauge.speeds` where both are passed on together.
    """

    log_speed: float
    sd: float
    runs: int
    sittings: dict[str, SittingSpeed] = field(default_factory=dict)
    host_class: str = ""
    node_type: str = ""
    by_kernels: MachineSpeed | None = None


@dataclass(frozen=True)
class Gauge:
    """The speeds of machines in times of the kernels of `voxcast.measure.metronome`.

    What slows the kernels slows the work by about as much, so sittings and machines differ by less
    in this unit, and a reading of one second shows most of the difference of another day.

    Attributes
    ----------
    kernel_s : float
        Geometric mean of the CPU seconds of the kernels at which speeds in both units are equal.
    speeds : Speeds
        Of the runs before which the kernels were timed.
    """

    kernel_s: float
    speeds: Speeds

    def log_time(self, kernel_s: float) -> float:
        """Return the logarithm of a reading in the unit of this gauge."""
        return math.log(kernel_s / self.kernel_s)


@dataclass(frozen=True)
class Speeds:
    """The speeds of machines for one application.

    Attributes
    ----------
    reference : str
        The machine of logarithmic speed 0, by its id.
    machines : dict of str to MachineSpeed
        By id. Runs of a source that does not state machines are of one with an empty id.
    unknown : SpeedEstimate
        A machine that was never measured.
    sitting_spread : float
        Standard deviation between the sittings on a machine, estimated with `sitting_freedom`
        degrees of freedom.
    noise_sd, subject_sd : float
        Standard deviation of a run around the work of its image, and of images around the law of
        their sizes: how much few runs tell.
    gauge : Gauge or None
        None where the kernels were not timed before runs.
    """

    reference: str
    machines: dict[str, MachineSpeed]
    unknown: SpeedEstimate
    sitting_spread: float
    noise_sd: float
    subject_sd: float
    gauge: Gauge | None = None

    def runs(self, host: str | None) -> int:
        """Return the number of runs on a machine; None is the reference machine."""
        name = self.reference if host is None else host
        return sum(machine.runs for machine in self.named(name))

    def is_on_record(self, host: str | None, sitting: str | None) -> bool:
        """Whether a sitting on a machine was measured."""
        return host in self.machines and sitting in self.machines[host].sittings

    def named(self, name: str) -> list[MachineSpeed]:
        """Return the machines of an id, a host class or a node type; empty if there are none."""
        if name in self.machines:
            return [self.machines[name]]
        if not name:
            return []
        kinds = self.machines.values()
        return [machine for machine in kinds if name in (machine.host_class, machine.node_type)]

    def current_sitting(self, host: str, now: datetime) -> str | None:
        """Return the ongoing sitting of a machine, in which its last run was made, if recent."""
        if host not in self.machines:
            return None
        starts = {
            name: start
            for name, sitting in self.machines[host].sittings.items()
            if (start := _time(sitting.last_at)) is not None
            # A clock that was wrong may have dated runs in the future.
            and timedelta(0) <= now - start < SITTING_LASTS
        }
        return max(starts, key=starts.__getitem__, default=None)

    def estimate(
        self, host: str | None, sitting: str | None = None, kernel_s: float | None = None
    ) -> SpeedEstimate:
        """Return the speed of a machine.

        Parameters
        ----------
        host : str or None
            Id of the machine, or the host class or node type of one. None stands for the runs on
            record as a whole, whose speed is known.
        sitting : str or None
            A sitting on record; any other is a new one, which deviates as sittings do.
        kernel_s : float, optional
            CPU seconds of the kernels there now. It counts unless days differ by as much in that
            unit, or runs in this sitting, before which nothing was timed, are more certain.
        """
        gauge = self._telling_gauge(host, sitting, kernel_s)
        if gauge is None or kernel_s is None:
            return self._by_runs(host, sitting)
        relative = gauge.speeds._by_runs(host, sitting)
        log_speed = relative.log_speed - gauge.log_time(kernel_s)
        return replace(relative, log_speed=log_speed, basis="reading")

    def _telling_gauge(
        self, host: str | None, sitting: str | None, kernel_s: float | None
    ) -> Gauge | None:
        """Return the gauge if a reading is the best source of a speed; None if runs are."""
        if self.gauge is None or kernel_s is None or host is None:
            return None
        if self.gauge.speeds.sitting_spread >= self.sitting_spread:
            return None
        by_runs, relative = (s._by_runs(host, sitting) for s in (self, self.gauge.speeds))
        is_alike = relative.basis == by_runs.basis
        return self.gauge if is_alike or relative.sd < by_runs.sd else None

    def _by_runs(self, host: str | None, sitting: str | None) -> SpeedEstimate:
        """Return the speed of a machine that runs on record tell."""
        if host is None:
            return SpeedEstimate(0.0, 0.0)
        if host in self.machines:
            machine = self.machines[host]
            if sitting is not None and sitting in machine.sittings:
                on_record = machine.sittings[sitting]
                return SpeedEstimate(on_record.log_speed, on_record.sd, basis="sitting")
            estimate = SpeedEstimate(machine.log_speed, machine.sd, basis="machine")
        elif machines := self.named(host):
            estimate = _of_class(machines)
        else:
            sd = math.hypot(self.unknown.sd, self.sitting_spread)
            return replace(self.unknown, sd=sd)
        sd = math.hypot(estimate.sd, self.sitting_spread)
        return replace(estimate, sd=sd, freedom=self.sitting_freedom)

    @cached_property
    def sitting_freedom(self) -> float:
        """Degrees of freedom of `sitting_spread`: two of the prior, and days on record.

        On each machine the first day counts for its speed. Sittings of one day are much alike,
        so that they say little about other days.
        """
        days = (len(by_day(machine.sittings.values())) for machine in self.machines.values())
        return PRIOR_DAYS + sum(max(count - 1, 0) for count in days)

    @property
    def largest_sd(self) -> float:
        """Standard deviation of a logarithmic speed up to which a machine counts as known."""
        return min(max(LARGEST_SD, RELATIVE_SD * self.sitting_spread), HIGHEST_SD)

    def knows(
        self, host: str | None, sitting: str | None = None, kernel_s: float | None = None
    ) -> bool:
        """Whether a machine is known well enough for a calibrated bound.

        It takes `MINIMUM_RUNS` runs, whose speed is certain within `LARGEST_SD`, or within
        `RELATIVE_SD` times the spread between sittings, which no run takes from a new sitting, but
        never more than `HIGHEST_SD`. A host class or node type takes `MINIMUM_MACHINES` too, and a
        sitting to come some machine that was measured on two days: nothing else shows how much
        days differ.
        """
        if host is None:
            return True
        if gauge := self._telling_gauge(host, sitting, kernel_s):
            return gauge.speeds.knows(host, sitting)
        if self.sitting_freedom <= PRIOR_DAYS and not self.is_on_record(host, sitting):
            return False
        if host not in self.machines and len(self.named(host)) < MINIMUM_MACHINES:
            return False
        is_certain = self._by_runs(host, sitting).sd <= self.largest_sd
        return self.runs(host) >= MINIMUM_RUNS and is_certain

    def measured(self, host: str) -> MachineSpeed:
        """Return the measured speed of a machine, in both units."""
        by_kernels = None if self.gauge is None else self.gauge.speeds.machines.get(host)
        return replace(self.machines[host], by_kernels=by_kernels)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Speeds:
        """Read what `to_json` returned."""
        machines = {
            host: MachineSpeed(
                machine["log_speed"],
                machine["sd"],
                machine["runs"],
                {name: SittingSpeed(**sitting) for name, sitting in machine["sittings"].items()},
                machine["host_class"],
                machine["node_type"],
            )
            for host, machine in content["machines"].items()
        }
        unknown, gauge = SpeedEstimate(**content["unknown"]), content.get("gauge")
        if gauge is not None:
            gauge = Gauge(gauge["kernel_s"], cls.from_json(gauge["speeds"]))
        return cls(**{**content, "machines": machines, "unknown": unknown, "gauge": gauge})


def by_day(sittings: Iterable[SittingSpeed]) -> list[list[SittingSpeed]]:
    """Return sittings by the day (UTC) of their last run, see `day_of`."""
    days: dict[str, list[SittingSpeed]] = defaultdict(list)
    for sitting in sittings:
        days[day_of(sitting.last_at)].append(sitting)
    return list(days.values())


def day_of(text: str) -> str:
    """Return the day (UTC) of an ISO text; a text that is not a time is a day by itself."""
    time = _time(text)
    return text if time is None else time.astimezone(UTC).date().isoformat()


def _time(text: str) -> datetime | None:
    """Return the time of an ISO text, in UTC if it states no zone; None if it is not a time."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _of_class(machines: list[MachineSpeed]) -> SpeedEstimate:
    """Return the speed of another machine of a class; each machine on record counts alike.

    Runs tell the speed of their machine alone, so that many of them on one tell little of another.
    """
    log_speeds = np.array([machine.log_speed for machine in machines])
    variances = np.array([machine.sd**2 for machine in machines])
    count = len(machines)
    squares = float(((log_speeds - log_speeds.mean()) ** 2).sum())
    freedom = PRIOR_MACHINES + count - 1
    spread = (PRIOR_MACHINES * CLASS_SPREAD**2 + squares) / freedom
    variance = spread * (1 + 1 / count) + float(variances.sum()) / count**2
    return SpeedEstimate(float(log_speeds.mean()), variance**0.5, basis="kind")


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
class RunResidual:
    """A run on a machine: logarithm of measured over predicted time at the reference speed.

    ``kernel_s`` is the CPU time of the kernels before it, None if unknown.
    """

    sitting: str
    subject: str
    started_at: str
    log_residual: float
    kernel_s: float | None = None


def residuals_of(
    runs: Iterable[Mapping[Any, Any]], predictions: Iterable[Prediction], target: str = "cpu_s"
) -> list[RunResidual]:
    """Return the residuals of runs whose prediction is not out of range.

    Parameters
    ----------
    runs : iterable of mapping
        With ``sitting subject started_at`` and the target.
    predictions : iterable of Prediction
        Of these runs, at the average speed of the training runs.
    """
    return [
        RunResidual(
            str(run["sitting"]),
            str(run["subject"]),
            str(run["started_at"]),
            math.log(run[target] / prediction.quantiles[target][1]),
            timed_or_none(run.get(KERNEL_S)),
        )
        for run, prediction in zip(runs, predictions, strict=True)
        if not prediction.out_of_range
    ]


def timed_or_none(kernel_s: float | None) -> float | None:
    """Return a reading, None for NaN."""
    return None if kernel_s is None or math.isnan(kernel_s) else float(kernel_s)


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
    on_it, in_sittings, _ = posterior(before, observed, days, *spread)
    is_doubtful = False
    # In the order of time: the last sitting shows whether the machine is in doubt now.
    for name in sorted(observed, key=last_at.__getitem__):
        values, here = observed[name], in_sittings[name]
        others = {other: mean for other, mean in observed.items() if other != name}
        beside, _, between = posterior(before, others, days, *spread)
        sd = math.hypot(beside.sd, between, values.variance**0.5)
        gap = abs(values.log_speed - beside.log_speed)
        is_doubtful = gap > CONFLICT * sd or not values.agree
        here = _doubted(here) if is_doubtful else here
        sittings[name] = replace(sittings[name], log_speed=here.log_speed, sd=here.sd)
    on_it = _doubted(on_it) if is_doubtful else on_it
    machine = replace(
        machine, log_speed=on_it.log_speed, sd=on_it.sd, runs=machine.runs + len(residuals),
        sittings=sittings,
    )  # fmt: skip
    after = with_machines(speeds, {host: machine})
    if speeds.gauge is None:
        return after
    relative = [
        replace(run, log_residual=run.log_residual - speeds.gauge.log_time(run.kernel_s))
        for run in residuals
        if run.kernel_s is not None
    ]
    if not relative:
        return after
    by_kernels = updated(speeds.gauge.speeds, host, relative, host_class=host_class)
    return replace(after, gauge=replace(speeds.gauge, speeds=by_kernels))


def with_machines(speeds: Speeds, machines: Mapping[str, MachineSpeed]) -> Speeds:
    """Return speeds with some machines replaced or added.

    The spread between sittings is estimated again, with the evidence of their further days of it.
    """
    squares, days = 0.0, 0
    for host, machine in machines.items():
        before = speeds.machines.get(host)
        earlier = {} if before is None else before.sittings
        further = by_day(s for name, s in machine.sittings.items() if name not in earlier)
        for sittings in further:
            deviations = [sitting.log_speed - machine.log_speed for sitting in sittings]
            squares += float(np.mean(np.square(deviations)))
        days += len(further)
        if further and not machine.sittings.keys() & earlier.keys():
            days -= 1  # the first names the machine
    freedom = speeds.sitting_freedom
    variance = (freedom * speeds.sitting_spread**2 + squares) / (freedom + days)
    gauge = speeds.gauge
    by_kernels = {h: m.by_kernels for h, m in machines.items() if m.by_kernels is not None}
    if gauge is not None and by_kernels:
        gauge = replace(gauge, speeds=with_machines(gauge.speeds, by_kernels))
    alone = {host: replace(machine, by_kernels=None) for host, machine in machines.items()}
    return replace(
        speeds, machines={**speeds.machines, **alone}, sitting_spread=variance**0.5, gauge=gauge
    )


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
