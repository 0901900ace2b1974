"""What was planned for the jobs of a submission, as part of its plan, and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PlannedTime:
    """What a way to run the tasks takes by prediction: makespan and core-hours held."""

    makespan_s: float
    core_h: float


@dataclass(frozen=True)
class JobSchedule:
    """Jobs in the order in which they are to start.

    Attributes
    ----------
    nodes, cores_per_node : int
        For which it was planned.
    jobs : tuple of tuple of tuple of str
        Names of tasks, by lane, by job.
    predicted : PlannedTime
    makespan_interval_s : (float, float)
        At 90 %, see `voxcast.hpc.job_plan.JobPlan.interval_s`.
    makespan_bound_s : float
        No schedule on these nodes ends sooner, if the predictions are right.
    alternatives : mapping of str to PlannedTime
        Other ways to run the same tasks, by name.
    """

    nodes: int
    cores_per_node: int
    jobs: tuple[tuple[tuple[str, ...], ...], ...]
    predicted: PlannedTime
    makespan_interval_s: tuple[float, float]
    makespan_bound_s: float
    alternatives: dict[str, PlannedTime] = field(default_factory=dict)

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> JobSchedule:
        """Return the schedule with the fields that `to_record` gave."""
        lower_s, upper_s = map(float, fields["makespan_interval_s"])
        return cls(
            int(fields["nodes"]), int(fields["cores_per_node"]),
            tuple(tuple(tuple(map(str, lane)) for lane in job) for job in fields["jobs"]),
            PlannedTime(**fields["predicted"]),
            (lower_s, upper_s),
            float(fields["makespan_bound_s"]),
            {name: PlannedTime(**times) for name, times in fields["alternatives"].items()},
        )  # fmt: skip

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return sum(len(lane) for job in self.jobs for lane in job)
