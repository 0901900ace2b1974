"""The error log of a pool: one file for each attempt that did not end as a record.

Only the holder of a cell's claim writes its files, so that their numbers are those of attempts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import RunError
from voxcast.files import read_json, write_json
from voxcast.jobs.escalate import Attempt
from voxcast.records import as_fields, of_fields

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.records import Profile

TAIL_CHARACTERS = 4000


@dataclass(frozen=True)
class PoolError:
    """A failed attempt.

    Attributes
    ----------
    key : str
        Of the cell in the pool.
    attempt : Attempt
        What it asked for, or the limit that it reached, and how it ended.
    cause : str
        In one line.
    worker : str
    app, subject : str
    log_tail : str
        End of the run's log.
    profile : dict, optional
        What was measured of the run, as in records.
    host_class : str
        Of the machine.
    """

    key: str
    attempt: Attempt
    cause: str
    worker: str
    app: str
    subject: str = ""
    log_tail: str = ""
    profile: dict[str, Any] | None = None
    host_class: str = ""

    @classmethod
    def from_record(cls, fields: dict[str, Any]) -> PoolError:
        """Return the error with the fields that `dataclasses.asdict` gave."""
        return cls(**{**fields, "attempt": of_fields(Attempt, fields["attempt"])})


@dataclass(frozen=True)
class ErrorLog:
    """The folder of the error log."""

    folder: Path

    def add(self, number: int, error: PoolError) -> None:
        """Write attempt ``number`` of a cell, from 1; private to the user."""
        path = self._path(error.key, number)
        write_json(path, dataclasses.asdict(error))
        path.chmod(0o600)

    def of(self, key: str, attempts: int) -> list[PoolError]:
        """Return the attempts of a cell, in order.

        Raises
        ------
        RunError
            If a file is missing or damaged.
        """
        errors = []
        for number in range(1, attempts + 1):
            path = self._path(key, number)
            try:
                errors.append(PoolError.from_record(read_json(path)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(f"an attempt cannot be read ({error!r})", path) from None
        return errors

    def _path(self, key: str, number: int) -> Path:
        return self.folder / f"{key}.{number:03d}.json"


def profile_error(
    key: str, attempt: Attempt, profile: Profile, worker: str, log: str, **facts: str
) -> PoolError:
    """Return the error of a run that was measured."""
    lines = log.strip().splitlines()
    last = "".join(c for c in lines[-1] if c.isprintable())[:160] if lines else ""
    cause = f"{profile.outcome} ({last})" if last else profile.outcome
    tail = log[-TAIL_CHARACTERS:]
    return PoolError(
        key, attempt, cause, worker, log_tail=tail, profile=as_fields(profile), **facts
    )
