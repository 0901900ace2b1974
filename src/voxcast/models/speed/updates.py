"""The speed of a machine after further runs: a normal prior, and normal observations.

An observation is the measured CPU time of a run against what the model predicts on the reference
machine. Runs of one sitting share its deviation, so that many runs in one sitting leave it
uncertain how fast the machine is in another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.speed.speeds import MachineSpeed, SittingSpeed, SpeedEstimate, Speeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from voxcast.models.forecaster import Prediction

HUBER = 1.5  # standard deviations, beyond which an observation counts less
APP_SPREAD = 0.1  # between the speeds of one machine for several applications


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


@dataclass(frozen=True)
class _Observed:
    """The mean logarithmic speed of a sitting and the variance of that mean."""

    mean: float
    variance: float


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
    observed = {name: _observed(runs, speeds) for name, runs in by_sitting.items()}
    spread = speeds.sitting_spread**2
    sittings = dict(machine.sittings)
    for name, runs in by_sitting.items():
        others = {other: values for other, values in observed.items() if other != name}
        before = _combined(machine, others, spread)
        own_sitting = _posterior(
            before.log_speed, before.sd**2 + spread, observed[name].mean, observed[name].variance
        )
        last_at = max(run.started_at for run in runs)
        sittings[name] = SittingSpeed(own_sitting.log_speed, own_sitting.sd, len(runs), last_at)
    after = _combined(machine, observed, spread)
    runs_on_machine = machine.runs + len(residuals)
    machine = replace(
        machine, log_speed=after.log_speed, sd=after.sd, runs=runs_on_machine, sittings=sittings
    )
    return with_machines(speeds, {host: machine})


def with_machines(speeds: Speeds, machines: Mapping[str, MachineSpeed]) -> Speeds:
    """Return speeds with some machines replaced or added."""
    return replace(speeds, machines={**speeds.machines, **machines})


def for_another_application(estimates: Sequence[SpeedEstimate]) -> SpeedEstimate | None:
    """Return what the speeds of a machine for some applications tell of another one.

    None if there are none.
    """
    if not estimates:
        return None
    weights = np.array([1 / (estimate.sd**2 + APP_SPREAD**2) for estimate in estimates])
    mean = weights @ [estimate.log_speed for estimate in estimates] / weights.sum()
    return SpeedEstimate(float(mean), math.hypot(APP_SPREAD, float(1 / weights.sum()) ** 0.5))


def _combined(
    machine: MachineSpeed, observed: Mapping[str, _Observed], spread: float
) -> SpeedEstimate:
    """Return a machine's own speed after the sittings observed; ``spread`` is a variance."""
    estimate = SpeedEstimate(machine.log_speed, machine.sd)
    for values in observed.values():
        estimate = _posterior(
            estimate.log_speed, estimate.sd**2, values.mean, values.variance + spread
        )
    return estimate


def _posterior(mean: float, variance: float, observed: float, noise: float) -> SpeedEstimate:
    share = variance / (variance + noise) if variance else 0.0
    return SpeedEstimate(mean + share * (observed - mean), (variance * (1 - share)) ** 0.5)


def _observed(runs: Sequence[RunResidual], speeds: Speeds) -> _Observed:
    """Return the mean of a sitting; a run far from the others, such as a disturbed one, hardly
    counts.
    """
    values = -np.array([run.log_residual for run in runs])
    limit = HUBER * math.hypot(speeds.noise_sd, speeds.subject_sd)
    mean = float(np.median(values))
    for _ in range(20):
        weights = limit / np.maximum(np.abs(values - mean), limit)
        mean = float(weights @ values / weights.sum())
    subjects = len({run.subject for run in runs})
    return _Observed(mean, speeds.noise_sd**2 / len(runs) + speeds.subject_sd**2 / subjects)
