"""A tracking server behind an address: MLflow's client waits for minutes, this does not."""

from __future__ import annotations

import os

from voxcast.serving.server import HEALTH_S, check_answers

# MLflow's own limits, in whole seconds and repetitions; those that the user sets are kept.
_LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": f"{HEALTH_S:.0f}",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
HEALTH = "/health"  # of MLflow's server; it needs no password


def is_server(uri: str) -> bool:
    """Whether a tracking address is that of a server."""
    return uri.startswith(("http://", "https://"))


def limit_waiting() -> None:
    """Let MLflow's client give up after `voxcast.serving.server.HEALTH_S`, once."""
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
    check_answers(uri, HEALTH, "the tracking server", "see MLFLOW_TRACKING_URI")
