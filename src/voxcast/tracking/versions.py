"""Versions of the registered model: return to an older one, compare two."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, one_line
from voxcast.serving.registry.lookup import CHAMPION
from voxcast.tracking import registry
from voxcast.tracking.other_apps import damaged_others, warn
from voxcast.tracking.receipts import add_receipt, comparison_json
from voxcast.tracking.registered_versions import (
    LISTED,
    bundle_of,
    required_champion,
    version_numbered,
    versions,
)
from voxcast.tracking.registration import register_part
from voxcast.tracking.rivals import compare_versions, readable_bundle
from voxcast.tracking.runs import tracking_uri
from voxcast.tracking.version_tags import rollback_tags

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.serving.bundle import Bundle
    from voxcast.tracking.registered_versions import Version


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
    uri = tracking_uri(project)
    current = required_champion(uri)
    bundle = readable_bundle(uri, current)
    if app is not None and bundle is None:
        raise ModelError(
            "the champion cannot be read, so nothing can be carried over",
            f"version {current.number}",
            "roll back all applications, without --app",
        )
    former = version_numbered(uri, number or _replaced(uri, current, bundle, app))
    target, older = bundle_of(uri, former), former.number
    names = list(target.facts) if app is None else [target.app_named(app).name]
    for name in names:
        problem = target.problem_of(name)
        if problem is not None:
            fix = "choose another version, or one application with --app"
            raise ModelError(f"{name} is damaged: {problem}", f"version {older}", fix)
        target.forecaster(name)  # this release can read it
    # What is damaged is repaired: nobody decided against the model.
    present = {} if bundle is None else _intact_hashes(bundle)
    restored = {name: target.apps[name].forecaster_sha256 for name in names}
    damaged: dict[str, str] = {}
    if app is None:
        if older == current.number:
            raise ModelError("is the champion already", f"version {older}", LISTED)
        registry.use(project)
        registry.set_alias(CHAMPION, older)
        version = older
    else:
        if bundle is not None and app in present and bundle.has_forecaster(app, restored[app]):
            raise ModelError(f"has the champion's forecaster of {app}", f"version {older}", LISTED)
        registry.use(project)
        damaged = damaged_others(bundle, app)
        warn(damaged, ())
        replaced = current.number if app in present else target.apps[app].promotion.from_version
        version = _with_older_part(former, target, app, bundle, replaced)
    registry.set_tags(current.number, rollback_tags(app, version, "rolled_back"))
    registry.set_tags(version, rollback_tags(app, current.number, "restored"))
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
            "carried_over_damaged": damaged,
        },
    )


def _replaced(uri: str, current: Version, bundle: Bundle | None, app: str | None) -> str:
    """Return the version that the champion replaced, or that an application's forecaster did.

    Of an application that is damaged or missing in the champion, it is the newest intact one.
    """
    if app is None or bundle is None:
        former = current.tags.get("promoted_from_version", "none")
    elif not bundle.is_intact(app):
        return _newest_intact(uri, bundle, app)
    else:
        former = bundle.app_named(app).promotion.from_version or "none"
    if former == "none":
        raise ModelError("replaced no other", f"version {current.number}", LISTED)
    return former


def _newest_intact(uri: str, bundle: Bundle, app: str) -> str:
    """Return the newest version in which an application is intact."""
    for version in versions(uri):
        if app in version.apps:
            candidate = readable_bundle(uri, version)
            if candidate is not None and candidate.is_intact(app):
                return version.number
    bundle.app_named(app)  # it is not known, or its facts are damaged
    fix = f"`voxcast learn --app {app}` trains another"
    raise ModelError("is damaged in every version", app, fix)


def _with_older_part(
    former: Version, target: Bundle, app: str, bundle: Bundle | None, replaced: str | None
) -> str:
    """Register a version with an older forecaster of one application; return its number.

    ``replaced`` is the version to which the next rollback of the application returns.
    """
    from mlflow.exceptions import MlflowException

    part = target.part(app)
    promotion = replace(
        part.served.promotion,
        reason="rolled_back",
        detail=f"by a person's decision, the forecaster of version {former.number}",
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        from_version=replaced,
    )
    part = replace(part, served=replace(part.served, promotion=promotion))
    try:
        return register_part(former.run_id, part, bundle)
    except (MlflowException, OSError) as error:
        problem = f"cannot be registered: {one_line(error)}"
        raise ModelError(problem, f"version {former.number}") from error


def _intact_hashes(bundle: Bundle) -> dict[str, str]:
    """Return the hash of the forecaster of each application that is intact."""
    return {
        name: served.forecaster_sha256
        for name, served in bundle.apps.items()
        if bundle.is_intact(name)
    }


def bundles_to_compare(
    uri: str, numbers: tuple[str, str], app: str | None = None
) -> tuple[Bundle, Bundle]:
    """Open the bundles of two versions.

    Raises
    ------
    ModelError
        If there is no such version, or one of them does not have the application.
    """
    first, second = (bundle_of(uri, version_numbered(uri, number)) for number in numbers)
    if app is not None:
        for bundle in (first, second):
            bundle.app_named(app)
    return first, second


def compare_bundles(
    project: Path,
    validations: Mapping[str, Validation],
    numbers: tuple[str, str],
    bundles: tuple[Bundle, Bundle],
    app: str | None = None,
) -> dict[str, Any]:
    """Compare the forecasters of two versions on all runs on record; return the receipt.

    Parameters
    ----------
    project : Path
        Project folder; the receipt is added to its log.
    validations : mapping
        Training runs by application, see `voxcast.models.selection.validations`.
    numbers : (str, str)
        Versions; gains are those of the first.
    bundles : (Bundle, Bundle)
        Their bundles, see `bundles_to_compare`.
    app : str, optional
        Application; by default all that both versions have and that are on record.

    Raises
    ------
    ModelError
        If there is no application to compare.
    """
    both = [name for name in bundles[0].apps if app in (None, name) and name in bundles[1].apps]
    names = [name for name in both if name in validations]
    if not names:
        where = f"versions {numbers[0]} and {numbers[1]}"
        if not both:
            raise ModelError("have no application in common", where, LISTED)
        raise ModelError(
            f"have {', '.join(both)} in common, but the training table has the runs of the last "
            f"pass of learning alone, of {', '.join(validations)}",
            where,
            f"run `voxcast learn --app {both[0]}` first",
        )
    comparisons: dict[str, Any] = {}
    for name in names:
        if bundles[0].has_forecaster(name, bundles[1].apps[name].forecaster_sha256):
            comparisons[name] = {"same_forecaster": True}
            continue
        comparison = compare_versions(validations[name], name, *bundles)
        comparisons[name] = None if comparison is None else comparison_json(comparison)
    content = {"first": numbers[0], "second": numbers[1], "apps": comparisons}
    return add_receipt(project, "comparison", content)
