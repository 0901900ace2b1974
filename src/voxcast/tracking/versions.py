"""Versions of the registered model: return to an older one, compare two."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, one_line
from voxcast.tracking import registry
from voxcast.tracking.promotion import register_part
from voxcast.tracking.receipts import add_receipt, comparison_json
from voxcast.tracking.rivals import compare_versions, readable_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.serving.bundle import Bundle

LISTED = "`voxcast models` lists the versions"


def roll_back(project: Path, number: str | None = None, app: str | None = None) -> dict[str, Any]:
    """Return to an older version of the model, or of one application's forecaster.

    Without ``app`` the alias of the champion moves. With it a new version is registered, in which
    the application's forecaster is the older one, and the others are carried over.

    Parameters
    ----------
    project : Path
        Project folder; the receipt is added to its log.
    number : str, optional
        Version to return to; by default the one that the champion, or the application's
        forecaster, replaced.
    app : str, optional
        Application; by default all.

    Returns
    -------
    dict
        The receipt.

    Raises
    ------
    ModelError
        If there is no such version or application, or its files are damaged.
    """
    current = registry.required_champion(project)
    bundle = readable_bundle(current)
    if app is not None and bundle is None:
        raise ModelError(
            "the champion cannot be read, so nothing can be carried over",
            f"version {current.number}",
            "roll back all applications, without --app",
        )
    older = number or _replaced(current, bundle, app)
    target = registry.bundle_of(older)
    names = list(target.apps) if app is None else [target.app_named(app).name]
    for name in names:
        target.forecaster(name)  # its files are intact
    present = {} if bundle is None else _hashes(bundle)
    restored = {name: target.apps[name].forecaster_sha256 for name in names}
    if app is None:
        if older == current.number:
            raise ModelError("is the champion already", f"version {older}", LISTED)
        registry.set_champion(older)
        version = older
    else:
        if present.get(app) == restored[app]:
            raise ModelError(f"has the champion's forecaster of {app}", f"version {older}", LISTED)
        version = _with_older_part(older, target, app, bundle, current.number)
    return add_receipt(
        project,
        "rollback",
        {
            "app": app,
            "from_version": current.number,
            "to_version": older,
            "version": version,
            "removed": {
                name: sha256
                for name, sha256 in present.items()
                if (app in (None, name)) and restored.get(name) != sha256
            },
            "restored": restored,
        },
    )


def _replaced(current: registry.Version, bundle: Bundle | None, app: str | None) -> str:
    """Return the version that the champion replaced, or that an application's forecaster did."""
    if app is None or bundle is None:
        former = current.tags.get("promoted_from_version", "none")
    else:
        former = bundle.app_named(app).promotion.from_version or "none"
    if former == "none":
        raise ModelError("replaced no other", f"version {current.number}", LISTED)
    return former


def _with_older_part(
    older: str, target: Bundle, app: str, bundle: Bundle | None, current: str
) -> str:
    """Register a version with an older forecaster of one application; return its number."""
    from mlflow.exceptions import MlflowException

    part = target.part(app)
    promotion = replace(
        part.served.promotion,
        reason="rolled_back",
        detail=f"by a person's decision, the forecaster of version {older}",
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        from_version=current,
    )
    part = replace(part, served=replace(part.served, promotion=promotion))
    try:
        return register_part(registry.run_of(older), part, bundle).number
    except (MlflowException, OSError) as error:
        raise ModelError(f"cannot be registered: {one_line(error)}", f"version {older}") from error


def _hashes(bundle: Bundle) -> dict[str, str]:
    return {name: served.forecaster_sha256 for name, served in bundle.apps.items()}


def compare_bundles(
    project: Path,
    validations: Mapping[str, Validation],
    first: str,
    second: str,
    app: str | None = None,
) -> dict[str, Any]:
    """Compare the forecasters of two versions on all runs on record; return the receipt.

    Parameters
    ----------
    validations : mapping
        Training runs by application, see `voxcast.models.selection.validations`.
    first, second : str
        Versions; gains are those of the first.
    app : str, optional
        Application; by default all that both versions have and that are on record.

    Raises
    ------
    ModelError
        If there is no such version, or no application to compare.
    """
    registry.use(project)
    bundles = registry.bundle_of(first), registry.bundle_of(second)
    if app is not None:
        for bundle in bundles:
            bundle.app_named(app)
    names = [
        name
        for name in validations
        if app in (None, name) and all(name in bundle.apps for bundle in bundles)
    ]
    if not names:
        raise ModelError(
            "have no application in common of which runs are on record",
            f"versions {first} and {second}",
            LISTED,
        )
    comparisons: dict[str, Any] = {}
    for name in names:
        if _hashes(bundles[0])[name] == _hashes(bundles[1])[name]:
            comparisons[name] = {"same_forecaster": True}
            continue
        comparison = compare_versions(validations[name], name, *bundles)
        comparisons[name] = None if comparison is None else comparison_json(comparison)
    versions = {"first": first, "second": second}
    return add_receipt(project, "comparison", {**versions, "apps": comparisons})
