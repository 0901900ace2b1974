"""A deadline as people write it: a duration from now, or a time."""

from __future__ import annotations

from datetime import datetime

from voxcast.errors import ConfigError
from voxcast.quantities import parse_seconds


def seconds_until(deadline: str, where: str = "deadline") -> float:
    """Return the seconds until a time, or of a duration.

    Parameters
    ----------
    deadline : str
        A time in ISO 8601, of this machine's zone where it names none, or a duration with a unit.
    where : str
        Name of the option or field, for messages.

    Raises
    ------
    ConfigError
        If it is neither, or in the past.

    Examples
    --------
    >>> seconds_until("2h")
    7200.0
    """
    try:
        time = datetime.fromisoformat(deadline)
    except ValueError:
        return _duration_s(deadline, where)
    try:
        left_s = (time.astimezone() - datetime.now().astimezone()).total_seconds()
    except (ValueError, OverflowError, OSError):  # years 1 and 9999, depending on the time zone
        raise ConfigError(f"not a valid time: {deadline}", where) from None
    if left_s <= 0:
        raise ConfigError(f"is in the past: {deadline}", where)
    return left_s


def _duration_s(deadline: str, where: str) -> float:
    try:
        return parse_seconds(deadline)
    except ConfigError as error:
        then = "write a duration, 2h, or a time, 2026-12-24T18:00"
        raise ConfigError(error.problem, where, then) from None
