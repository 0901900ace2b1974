"""Versions of the registered model: return to an older one, compare two.

In what two versions of the registered model differ, by their records: nothing is judged.

`voxcast.tracking.versions.compare_bundles` judges them on runs on record.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.records import TARGETS
from voxcast.serving.model_store import LISTED, ModelStore
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.promotion import damaged_others, warn
from voxcast.tracking.receipts import add_receipt, comparison_json
from voxcast.tracking.registration import register_part
from voxcast.tracking.registry import follow, set_champion
from voxcast.tracking.rivals import compare_versions, readable
from voxcast.tracking.runs import connect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.models.selection.cross_validation import Validation
    from voxcast.serving.bundle import Bundle
    from voxcast.serving.served_app import ServedApp


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
    bundle = readable(store, current)
    if app is not None and bundle is None:
        raise ModelError(
            "the champion cannot be read, so nothing can be carried over",
            f"version {current}",
            "roll back all applications, without --app",
        )
    older = number or _replaced(store, current, bundle, app)
    target = store.open(older)
    names = list(target.facts) if app is None else [target.app_named(app).name]
    for name in names:
        problem = target.problem_of(name)
        if problem is not None:
            fix = "choose another version, or one application with --app"
            raise ModelError(f"{name} is damaged: {problem}", f"version {older}", fix)
        target.forecaster(name)  # this release can read it
    # Damage is repaired: no person decided against the model.
    present = {} if bundle is None else _intact_hashes(bundle)
    restored = {name: target.apps[name].forecaster_sha256 for name in names}
    damaged: dict[str, str] = {}
    if app is None:
        if older == current:
            raise ModelError("is the champion already", f"version {older}", LISTED)
        set_champion(project, older)
        version = older
    else:
        if bundle is not None and app in present and bundle.has_forecaster(app, restored[app]):
            raise ModelError(f"has the champion's forecaster of {app}", f"version {older}", LISTED)
        damaged = damaged_others(bundle, app)
        warn(damaged, ())
        replaced = current if app in present else target.apps[app].promotion.from_version
        version = _with_older_part(project, target, app, bundle, replaced)
    return add_receipt(
        project,
        "rollback",
        {
            "app": app,
            "from_version": current,
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


def _replaced(store: ModelStore, current: str, bundle: Bundle | None, app: str | None) -> str:
    """Return the version that the champion replaced, or that an application's forecaster did.

    Of an application that is damaged or missing in the champion, it is the newest intact one.
    """
    if bundle is None:  # which one it replaced is unknown: the newest before it
        former = next((n for n in store.numbers() if int(n) < int(current)), None)
    elif app is None:
        former = bundle.origin.previous
    elif not bundle.is_intact(app):
        return _newest_intact(store, bundle, app)
    else:
        former = bundle.app_named(app).promotion.from_version
    if former is None:
        raise ModelError("replaced no other", f"version {current}", LISTED)
    return former


def _newest_intact(store: ModelStore, bundle: Bundle, app: str) -> str:
    """Return the newest version in which an application is intact."""
    pointer = store.pointer()
    for number in pointer.numbers:
        if app in pointer.versions[number].apps:
            candidate = readable(store, number)
            if candidate is not None and candidate.is_intact(app):
                return number
    bundle.app_named(app)  # it is not known, or its facts are damaged
    fix = f"`voxcast learn --app {app}` trains another"
    raise ModelError("is damaged in every version", app, fix)


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


def _intact_hashes(bundle: Bundle) -> dict[str, str]:
    """Return the hash of the forecaster of each application that is intact."""
    return {
        name: served.forecaster_sha256
        for name, served in bundle.apps.items()
        if bundle.is_intact(name)
    }


def bundles_to_compare(
    store: ModelStore, numbers: tuple[str, str], app: str | None = None
) -> tuple[Bundle, Bundle]:
    """Open the bundles of two versions.

    Raises
    ------
    ModelError
        If a version does not exist or lacks the application.
    """
    first, second = (store.open(number) for number in numbers)
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
        Training runs by application, see `voxcast.models.selection.cross_validation`.
    numbers : (str, str)
        Versions; a gain above zero means that the first is better.
    bundles : (Bundle, Bundle)
        Their bundles, see `bundles_to_compare`.
    app : str, optional
        Application; by default all that both versions have and that are on record.

    Raises
    ------
    ModelError
        If the versions have no application to compare.
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


def difference(first: Bundle, second: Bundle, app: str | None = None) -> dict[str, Any]:
    """Return what differs between two versions.

    Parameters
    ----------
    first, second : Bundle
        The versions.
    app : str, optional
        Application; by default all that one of them has.

    Returns
    -------
    dict
        ``apps``: by application ``fields``, a mapping of a field to its two values where they
        differ; ``runs`` and ``subjects``, each with what was ``added`` and ``removed`` from the
        first to the second; or ``only_in``, the number of the version that has it.

    Raises
    ------
    ModelError
        If neither has the application.
    """
    names = sorted({*first.facts, *second.facts})
    if app is not None and app not in names:
        raise ModelError(f"unknown application; the versions have {', '.join(names)}", app)
    return {
        "first": first.version,
        "second": second.version,
        "apps": {name: _of_app(name, (first, second)) for name in names if app in (None, name)},
    }


def _of_app(app: str, bundles: tuple[Bundle, Bundle]) -> dict[str, Any]:
    for bundle, other in zip(bundles, reversed(bundles), strict=True):
        if app not in other.facts:
            return {"only_in": bundle.version}
        if app in bundle.damaged:
            return {"damaged_in": bundle.version, "problem": bundle.damaged[app]}
    before, after = (_fields(bundle.apps[app]) for bundle in bundles)
    sha256 = "forecaster_sha256"
    if bundles[0].has_forecaster(app, after[sha256]):
        after[sha256] = before[sha256]
    return {
        "fields": {
            name: [before.get(name), after.get(name)]
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        },
        "runs": _added_and_removed(*(bundle.cell_keys(app) for bundle in bundles)),
        "subjects": _added_and_removed(*(bundle.subjects(app) for bundle in bundles)),
    }


def _fields(served: ServedApp) -> dict[str, Any]:
    """Return the facts of an application that are compared, in the order of display."""
    promotion = served.promotion
    errors = promotion.evidence.get("cross_validation", {})
    risks = promotion.evidence.get("risk_at_upper_quantile", {})
    return {
        "family": promotion.family,
        "params": promotion.params,
        "forecaster_sha256": served.forecaster_sha256,
        "app_version": promotion.app_version,
        "parameters": served.parameters,
        "configurations": [[c.device, c.cpus, c.gpus] for c in served.configurations],
        "measured": [list(allocation) for allocation in served.measured],
        "characteristics": list(served.characteristics),
        "hosts": list(served.host_classes),
        "table_sha256": promotion.table_sha256,
        "run_count": promotion.runs,
        "noisy_runs": promotion.noisy_runs,
        "subject_count": promotion.subjects,
        "calibrated": promotion.calibrated,
        "upper_quantile": promotion.upper_quantile,
        "cv_objective": promotion.cv_objective,
        **{f"{target}_mape_percent": errors.get(f"{target}/mape") for target in TARGETS},
        **{
            f"{target}_above_bound": [risks[target]["exceeded"], risks[target]["subjects"]]
            for target in TARGETS
            if target in risks
        },
        "reason": promotion.reason,
        "promoted_at": promotion.promoted_at,
        "software": promotion.evidence.get("software"),
    }


def _added_and_removed(before: Sequence[str], after: Sequence[str]) -> dict[str, list[str]]:
    return {
        "added": sorted({*after} - {*before}),
        "removed": sorted({*before} - {*after}),
    }
