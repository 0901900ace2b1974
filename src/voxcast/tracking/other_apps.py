"""The applications that a promotion does not concern, and damage to them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.serving.bundle import Bundle

logger = logging.getLogger(__name__)


def damaged_others(bundle: Bundle | None, app: str) -> dict[str, str]:
    """Return the damage to the other applications of a bundle, which are carried over."""
    if bundle is None:
        return {}
    problems = {name: bundle.problem_of(name) for name in bundle.facts if name != app}
    return {name: problem for name, problem in problems.items() if problem is not None}


def lost_others(apps: Iterable[str], bundle: Bundle | None, app: str) -> list[str]:
    """Return the other applications of a champion whose bundle cannot be read.

    A new version would be without them.
    """
    return sorted(name for name in apps if name != app) if bundle is None else []


def warn(damaged: Mapping[str, str], lost: Iterable[str]) -> None:
    """Log which applications a new version carries over damaged, and which it lacks."""
    for name, problem in damaged.items():
        logger.warning("%s is carried over as it is, damaged: %s; %s", name, problem, _fix(name))
    for name in lost:
        logger.warning("%s is not in the new version: it cannot be read; %s", name, _fix(name))


def _fix(app: str) -> str:
    command = f"`voxcast models rollback --app {app}`"
    return f"{command} brings back the newest forecaster that is intact"
