"""The speeds of machines for one application: the estimate of each, and of machines not measured.

``log cpu_s = work − log speed``. A machine has a speed of its own, and each sitting on it deviates
from that. The reference machine, on which most runs were made, has the logarithmic speed 0. What
is not known of a speed is its standard deviation, which widens the bounds of predictions. What
sittings differ by is itself estimated from few days, so a sitting to come has the heavy tails of
Student's t.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

# A machine is known from so many runs on (fewer may all be disturbed), once its speed is uncertain
# by no more than 5 %, or 1.5 times what sittings on one machine differ by.
MINIMUM_RUNS, LARGEST_SD, RELATIVE_SD = 3, 0.05, 1.5
# Sittings on record differ by 7 to 15 %. Where they differ by far more, it is not known of what
# kind the next one is, and no bound is calibrated.
HIGHEST_SD = 0.2
# What sittings differ by counts as known from so many days before the data, as in
# `voxcast.models.speed.estimation`.
PRIOR_DAYS = 2.0
# Before the data, machines of one host class or node type differ by this much. The prior counts as
# two machines. With fewer than three on record another of them is as good as not measured.
CLASS_SPREAD, PRIOR_MACHINES, MINIMUM_MACHINES = 0.1, 2.0, 3
# After its last run. On record, runs four hours apart differ by a quarter more than runs minutes
# apart, and runs of another day by three times as much.
SITTING_LASTS = timedelta(hours=4)


@dataclass(frozen=True)
class SpeedEstimate:
    """A logarithmic speed and its standard deviation.

    ``freedom`` is the number of degrees of freedom where the standard deviation is estimated from
    few days, so that the distribution is Student's t scaled by it; None for a normal one.
    """

    log_speed: float
    sd: float
    freedom: float | None = None

    def deviation(self, probability: float) -> float:
        """Return the quantile of the logarithmic speed, less its median."""
        if self.freedom is None:
            return NormalDist().inv_cdf(probability) * self.sd
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, probability)) * self.sd


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

    ``host_class`` and ``node_type`` are taken from its runs, empty if unknown. ``since`` is the
    day (ISO) of a lasting change, before which sittings say nothing of its speed; empty without
    one.
    """

    log_speed: float
    sd: float
    runs: int
    sittings: dict[str, SittingSpeed] = field(default_factory=dict)
    host_class: str = ""
    node_type: str = ""
    since: str = ""

    def levels(self) -> list[dict[str, SittingSpeed]]:
        """Return the sittings before and after the lasting change; all are one without one."""
        if not self.since:
            return [self.sittings]
        parts: list[dict[str, SittingSpeed]] = [{}, {}]
        for name, sitting in self.sittings.items():
            parts[day_of(sitting.last_at) >= self.since][name] = sitting
        return parts


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
    """

    reference: str
    machines: dict[str, MachineSpeed]
    unknown: SpeedEstimate
    sitting_spread: float
    noise_sd: float
    subject_sd: float

    def runs(self, host: str | None) -> int:
        """Return the number of runs on a machine; None is the reference machine."""
        name = self.reference if host is None else host
        return sum(machine.runs for machine in self.named(name))

    def named(self, name: str) -> list[MachineSpeed]:
        """Return the machines of an id, a host class or a node type; empty if there are none."""
        if name in self.machines:
            return [self.machines[name]]
        if not name:
            return []
        kinds = self.machines.values()
        return [machine for machine in kinds if name in (machine.host_class, machine.node_type)]

    def current_sitting(self, host: str, now: datetime) -> str | None:
        """Return the ongoing sitting of a machine: that of its last run, if recent."""
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

    def estimate(self, host: str | None, sitting: str | None = None) -> SpeedEstimate:
        """Return the speed of a machine.

        Parameters
        ----------
        host : str or None
            Id of the machine, or the host class or node type of one. None stands for the runs on
            record as a whole, whose speed is known.
        sitting : str or None
            A sitting on record; any other is a new one, which deviates as sittings do.
        """
        if host is None:
            return SpeedEstimate(0.0, 0.0)
        if host in self.machines:
            machine = self.machines[host]
            if sitting is not None and sitting in machine.sittings:
                on_record = machine.sittings[sitting]
                return SpeedEstimate(on_record.log_speed, on_record.sd)
            estimate = SpeedEstimate(machine.log_speed, machine.sd)
        elif machines := self.named(host):
            estimate = _of_class(machines)
        else:
            sd = math.hypot(self.unknown.sd, self.sitting_spread)
            return SpeedEstimate(self.unknown.log_speed, sd)
        sd = math.hypot(estimate.sd, self.sitting_spread)
        return SpeedEstimate(estimate.log_speed, sd, self.sitting_freedom)

    @cached_property
    def sitting_freedom(self) -> float:
        """Degrees of freedom of `sitting_spread`: two of the prior, and days on record.

        On each machine, and after a lasting change of it, the first day counts for its speed.
        Sittings of one day are much alike, so that they tell little of what another day differs
        by.
        """
        levels = (level for machine in self.machines.values() for level in machine.levels())
        days = (len(by_day(level.values())) for level in levels)
        return PRIOR_DAYS + sum(max(count - 1, 0) for count in days)

    @property
    def largest_sd(self) -> float:
        """Standard deviation of a logarithmic speed up to which a machine counts as known."""
        return min(max(LARGEST_SD, RELATIVE_SD * self.sitting_spread), HIGHEST_SD)

    def knows(self, host: str | None, sitting: str | None = None) -> bool:
        """Whether a machine is known well enough for a calibrated bound.

        It takes `MINIMUM_RUNS` runs, whose speed is certain within `LARGEST_SD`, or within
        `RELATIVE_SD` times the spread between sittings, which no run takes from a new sitting, but
        never more than `HIGHEST_SD`. A host class or node type takes `MINIMUM_MACHINES` too.
        """
        if host is None:
            return True
        if host not in self.machines and len(self.named(host)) < MINIMUM_MACHINES:
            return False
        is_certain = self.estimate(host, sitting).sd <= self.largest_sd
        return self.runs(host) >= MINIMUM_RUNS and is_certain

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Speeds:
        """Read what `to_json` returned."""
        machines = {
            host: MachineSpeed(
                **{
                    **machine,
                    "sittings": {
                        name: SittingSpeed(**sitting)
                        for name, sitting in machine["sittings"].items()
                    },
                }
            )
            for host, machine in content["machines"].items()
        }
        unknown = SpeedEstimate(**content["unknown"])
        return cls(**{**content, "machines": machines, "unknown": unknown})


def by_day(sittings: Iterable[SittingSpeed]) -> list[list[SittingSpeed]]:
    """Return sittings by the day (UTC) of their last run; unknown times are one day."""
    days: dict[str, list[SittingSpeed]] = defaultdict(list)
    for sitting in sittings:
        days[day_of(sitting.last_at)].append(sitting)
    return list(days.values())


def day_of(text: str) -> str:
    """Return the day (UTC) of an ISO text, empty if it is not a time."""
    time = _time(text)
    return "" if time is None else time.astimezone(UTC).date().isoformat()


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
    return SpeedEstimate(float(log_speeds.mean()), variance**0.5)
