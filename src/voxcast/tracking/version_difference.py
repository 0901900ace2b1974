"""In what two versions of the registered model differ, by their records: nothing is judged.

`voxcast.tracking.versions.compare_bundles` judges them on runs on record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.serving.bundle import Bundle
    from voxcast.serving.served_app import ServedApp


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
