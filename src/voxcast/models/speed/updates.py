"""The speed of a machine after further runs.

An observation is the measured CPU time of a run against what the model predicts on the reference
machine. Runs of one sitting share its deviation, so that many runs in one sitting leave it
uncertain how fast the machine is in another. Runs that disagree more than the model expects tell
less, and a sitting far from all that was known before is not believed until another confirms it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.speed.posterior import Spread, posterior
from voxcast.models.speed.sitting_mean import SittingMean, sitting_mean
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
    """Return the speeds with those of one machine updated by runs that were not learned from.

    Parameters
    ----------
    residuals : sequence of RunResidual
        Runs in sittings that are not among those of ``speeds``.
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
    before = SpeedEstimate(machine.log_speed, machine.sd)
    spread = Spread(speeds.sitting_spread, speeds.sitting_freedom)
    last_at = {name: max(run.started_at for run in runs) for name, runs in by_sitting.items()}
    days = {name: day_of(start) for name, start in last_at.items()}
    after = posterior(before, observed, days, spread)
    sittings, is_doubtful = dict(machine.sittings), False
    # In the order of time: the last sitting tells whether the machine is in doubt now.
    for name in sorted(by_sitting, key=last_at.__getitem__):
        values = observed[name]
        others = {other: mean for other, mean in observed.items() if other != name}
        elsewhere_on_it = posterior(before, others, days, spread)
        sd = math.hypot(elsewhere_on_it.machine.sd, elsewhere_on_it.spread, values.variance**0.5)
        gap = abs(values.log_speed - elsewhere_on_it.machine.log_speed)
        is_doubtful = gap > CONFLICT * sd or not values.agree
        here = _doubted(after.sittings[name]) if is_doubtful else after.sittings[name]
        sittings[name] = SittingSpeed(
            here.log_speed, here.sd, len(by_sitting[name]), last_at[name]
        )
    on_it = _doubted(after.machine) if is_doubtful else after.machine
    runs_on_machine = machine.runs + len(residuals)
    machine = replace(
        machine, log_speed=on_it.log_speed, sd=on_it.sd, runs=runs_on_machine, sittings=sittings
    )
    return with_machines(speeds, {host: machine})


def with_machines(speeds: Speeds, machines: Mapping[str, MachineSpeed]) -> Speeds:
    """Return speeds with some machines replaced or added.

    The spread between sittings is estimated anew, with what their further days tell of it.
    """
    squares, days = 0.0, 0
    for host, machine in machines.items():
        before = speeds.machines.get(host)
        earlier = {} if before is None else before.sittings
        further = by_day(
            sitting for name, sitting in machine.sittings.items() if name not in earlier
        )
        squares += sum(
            float(np.mean([(sitting.log_speed - machine.log_speed) ** 2 for sitting in sittings]))
            for sittings in further
        )
        days += len(further) - (not earlier and bool(further))  # the first tells the machine
    freedom = speeds.sitting_freedom
    variance = (freedom * speeds.sitting_spread**2 + squares) / (freedom + days)
    return replace(speeds, machines={**speeds.machines, **machines}, sitting_spread=variance**0.5)


def for_another_application(estimates: Sequence[SpeedEstimate]) -> SpeedEstimate | None:
    """Return what the speeds of a machine for some applications tell of another one.

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
