"""Phases of traced runs in MLflow: metrics, the phases as JSON, and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.tracking.runs import prefixed, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.tracking.runs import Session

PHASES_FILE, PAGE_FILE = "phases.json", "phases.html"


def log_phases(
    session: Session,
    name: str,
    metrics: Mapping[str, float],
    phases: Mapping[str, Any],
    page: str,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Log the phases of a traced run as a run of its kind, and return its id.

    Parameters
    ----------
    session : Session
        Of `voxcast.tracking.runs.connect`.
    name : str
        Name of the run.
    metrics : mapping
        Logged with the prefix ``phases``.
    phases : mapping
        What JSON can hold; the artifact ``phases.json``.
    page : str
        HTML; the artifact ``phases.html``.
    tags : mapping, optional
        For example ``app`` and ``cell_key``.
    """
    import mlflow

    with run(session, "trace", name, tags=tags, metrics=prefixed("phases", metrics)) as run_id:
        mlflow.log_dict(dict(phases), PHASES_FILE)
        mlflow.log_text(page, PAGE_FILE)
    return run_id
