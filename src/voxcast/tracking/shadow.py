"""A challenger in shadow: it is asked what the champion is asked, and its answers are logged only.

The version with the alias `CHALLENGER` is in shadow; the champion stays what it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.models.selection.promotion_rule import SHADOW, Decision
from voxcast.serving.registry.lookup import CHALLENGER
from voxcast.tracking import registry
from voxcast.tracking.receipts import add_receipt
from voxcast.tracking.registered_versions import (
    bundle_of,
    required_champion,
    version_numbered,
    versions,
)
from voxcast.tracking.registration import evidence, promotion_of, register_challenger
from voxcast.tracking.runs import tracking_uri

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.tracking import runs
    from voxcast.tracking.challengers import AppFacts, Challenger
    from voxcast.tracking.registered_versions import Version

SINCE, UNTIL = "shadow_since", "shadow_until"


def version_in_shadow(uri: str) -> Version | None:
    """Return the version in shadow, or None.

    Raises
    ------
    ModelError
        If the registry cannot be read.
    """
    return next((version for version in versions(uri) if version.is_challenger), None)


def start_newest(
    session: runs.Session,
    project: Path,
    app: AppFacts,
    challenger: Challenger,
    upper_quantile: float,
) -> dict[str, Any]:
    """Register the newest model of an application in shadow, and return the receipt.

    The version has the champion's forecasters of the other applications.

    Parameters
    ----------
    session : Session
        Connection to the tracking server.
    project : Path
        Project folder; the receipt is added to its log.
    app, challenger
        The application, and its best model.
    upper_quantile : float
        Probability of the bounds.

    Raises
    ------
    ModelError
        If there is no champion, its files were changed, or the newest model is the champion's.
    """
    uri = tracking_uri(project)
    current = required_champion(uri)
    bundle = bundle_of(uri, current)
    served = bundle.apps.get(app.name)
    if served is not None and challenger.is_model(served.forecaster_sha256):
        fix = f"`voxcast learn --app {app.name}` trains another"
        raise ModelError("the newest model is the champion's", app.name, fix)
    detail = f"it answers beside version {current.number}"
    decision = Decision(False, SHADOW, detail)
    judgement = evidence(app, challenger, {})
    promotion = promotion_of(app, challenger, decision, upper_quantile, current.number, judgement)
    former = version_in_shadow(uri)
    number = register_challenger(session, app, challenger, promotion, bundle, CHALLENGER)
    return _started(project, number, current.number, former, app.name)


def start_version(project: Path, number: str) -> dict[str, Any]:
    """Let a version that is registered answer in shadow, and return the receipt.

    Raises
    ------
    ModelError
        If there is no such version, it cannot be read, or it is the champion.
    """
    uri = tracking_uri(project)
    current, version = required_champion(uri), version_numbered(uri, number)
    if version.number == current.number:
        raise ModelError("is the champion, and cannot be its shadow", f"version {number}")
    bundle_of(uri, version)
    former = version_in_shadow(uri)
    registry.use(project)
    registry.set_alias(CHALLENGER, number)
    return _started(project, number, current.number, former, None)


def _started(
    project: Path, number: str, champion: str, former: Version | None, app: str | None
) -> dict[str, Any]:
    if former is not None and former.number != number:
        registry.set_tags(former.number, {UNTIL: _now()})
    registry.set_tags(number, {SINCE: _now()})
    content = {"action": "started", "version": number, "champion": champion, "app": app}
    return add_receipt(project, SHADOW, content)


def end(project: Path) -> dict[str, Any]:
    """End the shadow; the version stays registered. Return the receipt.

    Raises
    ------
    ModelError
        If no version is in shadow.
    """
    uri = tracking_uri(project)
    former = version_in_shadow(uri)
    if former is None:
        raise ModelError("no version is in shadow", uri, "`voxcast models shadow --app NAME`")
    registry.use(project)
    registry.delete_alias(CHALLENGER)
    registry.set_tags(former.number, {UNTIL: _now()})
    return add_receipt(project, SHADOW, {"action": "ended", "version": former.number})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
