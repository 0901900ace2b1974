"""A tracking server behind an address: MLflow's client waits for minutes, this does not."""

from __future__ import annotations

import os

from voxcast.errors import ModelError, one_line

ANSWER_S = 10
# MLflow's own limits, in whole seconds and repetitions; those that the user sets are kept.
_LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(ANSWER_S),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
HEALTH = "/health"  # of MLflow's server; it needs no password


def is_server(uri: str) -> bool:
    """Whether a tracking address is that of a server."""
    return uri.startswith(("http://", "https://"))


def limit_waiting() -> None:
    """Let MLflow's client give up after `ANSWER_S`, once."""
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
    import httpx

    then = "see MLFLOW_TRACKING_URI"
    try:
        httpx.get(uri.rstrip("/") + HEALTH, timeout=ANSWER_S)
    except httpx.TimeoutException:
        problem = f"the tracking server does not answer within {ANSWER_S} s"
        raise ModelError(problem, uri, then) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"the tracking server is not there: {one_line(error)}"
        raise ModelError(problem, uri, then) from None
