"""Versions of the registered model: return to an older one, compare two on runs on record."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.models.selection.comparison import compare_recipes
from voxcast.records import plain
from voxcast.serving.model_store import LISTED, ModelStore
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.promotion import add_receipt, contender_of, register_part
from voxcast.tracking.registry import follow, set_champion
from voxcast.tracking.runs import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.serving.bundle import Bundle


def roll_back(project: Path, number: str | None = None, app: str | None = None) -> dict[str, Any]:
    """Return to an older version of the model, or of one application's forecaster.

    Without ``app`` an older version is the champion again. With it a new one is registered, in
    which the application's forecaster is the older one, and the others are carried over.

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
        If the version or application does not exist, or its files are damaged.
    """
    store = ModelStore.of(project)
    follow(store, tracking_uri(project))
    current = store.champion()
    try:
        bundle = store.open(current)
    except ModelError:  # what rolling back all applications repairs
        if app is not None:
            raise
        bundle = None
    older = number or _replaced(store, current, bundle, app)
    target = store.open(older)
    names = list(target.apps) if app is None else [target.app_named(app).name]
    for name in names:
        target.check(name)
    # Damage is repaired: no person decided against the model.
    damaged = {} if bundle is None else bundle.problems()
    present = {
        name: served.forecaster_sha256
        for name, served in (bundle.apps if bundle is not None else {}).items()
        if f"application {name}" not in damaged
    }
    restored = {name: target.apps[name].forecaster_sha256 for name in names}
    if app is None:
        if older == current:
            raise ModelError("is the champion already", f"version {older}", LISTED)
        set_champion(project, older)
        version = older
    else:
        if present.get(app) == restored[app]:
            raise ModelError(f"has the champion's forecaster of {app}", f"version {older}", LISTED)
        replaced = current if app in present else target.apps[app].promotion.from_version
        version = _with_older_part(project, target, app, bundle, replaced)
    removed = {
        name: sha256
        for name, sha256 in present.items()
        if app in (None, name) and restored.get(name) != sha256
    }
    content = {
        "app": app, "from_version": current, "to_version": older, "version": version,
        "removed": removed, "restored": restored,
    }  # fmt: skip
    return add_receipt(project, "rollback", content)


def _replaced(store: ModelStore, current: str, bundle: Bundle | None, app: str | None) -> str:
    """Return the version that the champion replaced, or that an application's forecaster did."""
    if bundle is None:  # which one it replaced is unknown: the newest before it
        former = next((n for n in store.pointer().numbers if int(n) < int(current)), None)
    elif app is None:
        former = bundle.origin.previous
    else:
        former = bundle.app_named(app).promotion.from_version
    if former is None:
        raise ModelError("replaced no other", f"version {current}", LISTED)
    return former


def _with_older_part(
    project: Path, target: Bundle, app: str, bundle: Bundle | None, replaced: str | None
) -> str:
    """Register a version with an older forecaster of one application; return its number.

    ``replaced`` is the version to which the next rollback of the application returns.
    """
    part = target.part(app)
    promotion = replace(
        part.served.promotion,
        reason="rolled_back",
        detail=f"by a person's decision, the forecaster of version {target.version}",
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        from_version=replaced,
    )
    part = replace(part, served=replace(part.served, promotion=promotion))
    return register_part(connect(project), project, part, bundle, target.origin.git_commit)


def compare_versions(
    project: Path,
    numbers: tuple[str, str],
    runs_on_record: Callable[[], Mapping[str, Validation]],
    app: str | None = None,
) -> dict[str, Any]:
    """Compare the forecasters of two versions on all runs on record; return the receipt.

    Parameters
    ----------
    project : Path
        Project folder; the receipt is added to its log.
    numbers : (str, str)
        Versions; a gain above zero means that the first is better.
    runs_on_record : callable
        Returns the training runs by application, see `voxcast.models.selection.cross_validation`.
    app : str, optional
        Application; by default all that both versions have and that are on record.

    Raises
    ------
    ModelError
        If a version does not exist or lacks the application, or there is none to compare.
    """
    bundles = [ModelStore.of(project).open(number) for number in numbers]
    if app is not None:
        for bundle in bundles:
            bundle.app_named(app)
    validations = runs_on_record()
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
        first, second = (bundle.apps[name].forecaster_sha256 for bundle in bundles)
        if first == second:
            comparisons[name] = {"same_forecaster": True}
            continue
        table = validations[name].table
        contenders = [contender_of(bundle, name, table) for bundle in bundles]
        comparison = compare_recipes(validations[name], *contenders)
        comparisons[name] = None if comparison is None else plain(comparison)
    content = {"first": numbers[0], "second": numbers[1], "apps": comparisons}
    return add_receipt(project, "comparison", content)
