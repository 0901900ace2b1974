"""The speeds of machines for one application: what is known of each, and of those not measured.

``log cpu_s = work − log speed``. A machine has a speed of its own, and each sitting on it deviates
from that. The reference machine, on which most runs were made, has the logarithmic speed 0. What
is not known of a speed is its standard deviation, which widens the bounds of predictions.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

# A machine is known from so many runs on (fewer may all be disturbed), once its speed is uncertain
# by no more than 5 %, or 1.5 times what sittings on one machine differ by.
MINIMUM_RUNS, LARGEST_SD, RELATIVE_SD = 3, 0.05, 1.5
# After its last run. On record, runs four hours apart differ by a quarter more than runs minutes
# apart, and runs of another day by three times as much.
SITTING_LASTS = timedelta(hours=4)


@dataclass(frozen=True)
class SpeedEstimate:
    """A logarithmic speed and its standard deviation."""

    log_speed: float
    sd: float


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

    ``host_class`` and ``node_type`` are those of its runs, empty if unknown.
    """

    log_speed: float
    sd: float
    runs: int
    sittings: dict[str, SittingSpeed] = field(default_factory=dict)
    host_class: str = ""
    node_type: str = ""


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
        Standard deviation between the sittings on a machine.
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
        """Return the sitting of a machine that goes on: that of its last run, if it is recent."""
        if host not in self.machines:
            return None
        starts = {
            name: datetime.fromisoformat(sitting.last_at)
            for name, sitting in self.machines[host].sittings.items()
            if sitting.last_at
        }
        last = max(starts, key=starts.__getitem__, default=None)
        return last if last is not None and now - starts[last] < SITTING_LASTS else None

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
        machines = self.named(host)
        if host in self.machines and sitting is not None and sitting in machines[0].sittings:
            on_record = machines[0].sittings[sitting]
            return SpeedEstimate(on_record.log_speed, on_record.sd)
        if not machines:
            unknown = self.unknown
            return SpeedEstimate(unknown.log_speed, math.hypot(unknown.sd, self.sitting_spread))
        weights = [max(machine.runs, 1) for machine in machines]
        total = sum(weights)
        weighted = list(zip(weights, machines, strict=True))
        mean = sum(weight * machine.log_speed for weight, machine in weighted) / total
        variance = sum(
            weight * (machine.sd**2 + (machine.log_speed - mean) ** 2)
            for weight, machine in weighted
        )
        return SpeedEstimate(mean, math.hypot((variance / total) ** 0.5, self.sitting_spread))

    def knows(self, host: str | None, sitting: str | None = None) -> bool:
        """Whether a machine is known well enough for a calibrated bound.

        It takes `MINIMUM_RUNS` runs, of which the speed is certain within `LARGEST_SD`, or within
        `RELATIVE_SD` times the spread between sittings, which no run takes from a new sitting.
        """
        if host in (None, self.reference):
            return True
        largest = max(LARGEST_SD, RELATIVE_SD * self.sitting_spread)
        return self.runs(host) >= MINIMUM_RUNS and self.estimate(host, sitting).sd <= largest

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
