"""What a task asked for, and what became of it: requests, and attempts with their outcomes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.records import Outcome


@dataclass(frozen=True)
class Request:
    """The allocation that an attempt asks for."""

    walltime_s: float
    memory_bytes: int
    cpus: int
    gpus: int = 0

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Request:
        """Return the request with the fields that `to_record` gave."""
        return cls(**fields)

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task.

    Attributes
    ----------
    request : Request
    outcome : str
        How it ended, as the scheduler says; see `voxcast.records.Outcome`.
    runtime_s : float
        From its start to its end; 0 if it was never started.
    usd : float
        What it cost.
    """

    request: Request
    outcome: Outcome
    runtime_s: float = 0.0
    usd: float = 0.0

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Attempt:
        """Return the attempt with the fields that `to_record` gave."""
        return cls(**{**fields, "request": Request.from_record(fields["request"])})

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)
