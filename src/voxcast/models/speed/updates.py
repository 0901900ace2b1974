"""The speed of a machine after further runs.

An observation is the measured CPU time of a run against the model's prediction on the reference
machine. Runs of one sitting share its deviation, so that many runs in one sitting leave it
uncertain how fast the machine is in another. Runs that disagree more than the model expects tell
less, and a sitting far from all that was known before is not believed until another confirms it.
Then the machine may have changed for good, and the sittings before tell nothing of those to come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.speed.lasting_change import level_start, measured_days
from voxcast.models.speed.posterior import SittingMean, Spread, posterior, sitting_mean
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
    from collections.abc import Iterable, Mapping, Sequence

    from voxcast.models.forecaster import Prediction

APP_SPREAD = 0.1  # between the speeds of one machine for several applications
# A sitting conflicts with all that is known beside it from so many standard deviations on.
CONFLICT = 4.0


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
    observed = {name: _mean_of(runs, speeds) for name, runs in by_sitting.items()}
    last_at = {name: max(run.started_at for run in runs) for name, runs in by_sitting.items()}
    sittings = dict(machine.sittings) | {
        name: SittingSpeed(
            mean.log_speed, mean.variance**0.5, len(by_sitting[name]), last_at[name]
        )
        for name, mean in observed.items()
    }
    days = {name: day_of(sitting.last_at) for name, sitting in sittings.items()}
    spread = Spread(speeds.sitting_spread, speeds.sitting_freedom)
    before = SpeedEstimate(machine.log_speed, machine.sd)
    present = {name: sitting for name, sitting in sittings.items() if days[name] >= machine.since}
    level = {name: mean for name, mean in observed.items() if name in present}
    since = level_start(measured_days(present.values()), spread.sd, spread.freedom)
    if since:  # the machine was learned at another level
        before = replace(before, sd=math.hypot(before.sd, speeds.unknown.sd))
        level = {
            name: observed.get(name) or SittingMean(sitting.log_speed, sitting.sd**2)
            for name, sitting in present.items()
            if days[name] >= since
        }
    after = posterior(before, level, days, spread)
    is_doubtful = False
    # In the order of time: the last sitting shows whether the machine is in doubt now.
    for name in sorted(level.keys() & observed.keys(), key=last_at.__getitem__):
        values = observed[name]
        others = {other: mean for other, mean in level.items() if other != name}
        elsewhere_on_it = posterior(before, others, days, spread)
        sd = math.hypot(elsewhere_on_it.machine.sd, elsewhere_on_it.spread, values.variance**0.5)
        gap = abs(values.log_speed - elsewhere_on_it.machine.log_speed)
        is_doubtful = gap > CONFLICT * sd or not values.agree
        here = _doubted(after.sittings[name]) if is_doubtful else after.sittings[name]
        sittings[name] = replace(sittings[name], log_speed=here.log_speed, sd=here.sd)
    on_it = _doubted(after.machine) if is_doubtful else after.machine
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


def _mean_of(runs: Sequence[RunResidual], speeds: Speeds) -> SittingMean:
    return sitting_mean(
        [-run.log_residual for run in runs],
        [run.subject for run in runs],
        speeds.noise_sd,
        speeds.subject_sd,
    )


def _doubted(estimate: SpeedEstimate) -> SpeedEstimate:
    """Return an estimate too uncertain for a calibrated bound."""
    return replace(estimate, sd=math.hypot(estimate.sd, HIGHEST_SD))
