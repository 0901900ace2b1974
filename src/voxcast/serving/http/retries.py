"""When a question is asked again, and after which time."""

from __future__ import annotations

import math
import random
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import BadStatusLine, IncompleteRead

# The server is busy or starting; 502 is a connection that was refused, told by a proxy.
BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
_RANDOM = random.SystemRandom()  # so that clients started together do not wait alike


@dataclass(frozen=True)
class Retries:
    """Exponential back-off with full jitter.

    Full jitter, a time drawn uniformly from 0 to the current limit, spreads clients best; see
    M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog (2015).

    Attributes
    ----------
    attempts : int
        Of one question, the first included.
    base_s : float
        Upper limit of the wait after the first failure; it doubles with each.
    longest_s : float
        The limit grows no further than this.
    """

    attempts: int = 5
    base_s: float = 0.25
    longest_s: float = 10.0

    def wait_s(self, failures: int, requested_s: float | None = None) -> float:
        """Return how long to wait after so many failures.

        Parameters
        ----------
        failures : int
            At least 1.
        requested_s : float, optional
            What the server wants, ``Retry-After``; the wait is not shorter.
        """
        limit_s = min(self.longest_s, self.base_s * 2.0 ** (failures - 1))
        return (requested_s or 0.0) + _RANDOM.uniform(0.0, limit_s)


def retry_after_s(text: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or a date; None where it is neither.

    Examples
    --------
    >>> retry_after_s("7"), retry_after_s("Fri, 01 Jan 1999 00:00:00 GMT"), retry_after_s("soon")
    (7.0, 0.0, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            time = parsedate_to_datetime(text)
        except ValueError:
            return None
        if time.tzinfo is None:  # "-0000", of unknown zone
            time = time.replace(tzinfo=UTC)
        seconds = (time - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def is_transient(error: Exception) -> bool:
    """Tell whether a failed exchange may succeed when it is repeated.

    A server that is late is not asked again: the work would only be doubled.
    """
    if isinstance(error, TimeoutError):
        return False
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError)
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, BadStatusLine):  # another protocol, unless nothing came at all
        return isinstance(error, ConnectionError)
    return isinstance(error, OSError | IncompleteRead)
