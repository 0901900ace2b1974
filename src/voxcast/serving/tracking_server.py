"""A tracking server behind an address: whether it answers, in a short time.

MLflow's client waits for minutes.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request

from voxcast.errors import ModelError

TIMEOUT_S = 10
SCHEMES = ("http://", "https://")
# MLflow's own limits, in whole seconds and repetitions; those that the user sets are kept.
_LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(TIMEOUT_S),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
HEALTH = "/health"  # of MLflow's server; it needs no password


def is_server(uri: str) -> bool:
    """Whether a tracking address is that of a server."""
    return uri.startswith(SCHEMES)


def limit_waiting() -> None:
    """Let MLflow's client give up after `TIMEOUT_S`, once."""
    for name, value in _LIMITS.items():
        os.environ.setdefault(name, value)


def check(uri: str) -> None:
    """Check that a server answers at all.

    What it answers, such as a request for a password, is left to MLflow's client.

    Raises
    ------
    ModelError
        If it does not answer.
    """
    try:
        with urllib.request.urlopen(uri.rstrip("/") + HEALTH, timeout=TIMEOUT_S) as reply:  # noqa: S310
            reply.read(1)
    except urllib.error.HTTPError:
        return
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ModelError(
            f"the tracking server does not answer within {TIMEOUT_S} s: {reason}",
            uri,
            "see MLFLOW_TRACKING_URI",
        ) from None
