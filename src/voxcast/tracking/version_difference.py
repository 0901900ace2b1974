"""In what two versions of the registered model differ, by their records: nothing is judged.

`voxcast.tracking.versions.compare_bundles` judges them on runs on record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, one_line
from voxcast.records import TARGETS
from voxcast.tracking.registered_versions import bundle_of, model_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.serving.bundle import Bundle
    from voxcast.serving.served_app import ServedApp
    from voxcast.tracking.registered_versions import Version

MLMODEL = "MLmodel"
Pair = list[Any]  # the value of the first version, and of the second


def difference(
    uri: str, first: Version, second: Version, app: str | None = None
) -> dict[str, Any]:
    """Return what differs between two versions.

    Parameters
    ----------
    uri : str
        Tracking address.
    first, second : Version
        The versions.
    app : str, optional
        Application; by default all that one of them has.

    Returns
    -------
    dict
        ``apps``: by application ``fields``, a mapping of a field to its two values where they
        differ; ``runs`` and ``subjects``, each with what was ``added`` and ``removed`` from the
        first to the second; or ``only_in``, the number of the version that has it. ``signature``:
        columns that were ``added`` and ``removed``.

    Raises
    ------
    ModelError
        If a version cannot be read, or neither has the application.
    """
    bundles = bundle_of(uri, first), bundle_of(uri, second)
    names = sorted({*bundles[0].facts, *bundles[1].facts})
    if app is not None and app not in names:
        raise ModelError(f"unknown application; the versions have {', '.join(names)}", app)
    columns = [signature_columns(uri, version) for version in (first, second)]
    return {
        "first": first.number,
        "second": second.number,
        "apps": {
            name: _of_app(name, bundles, (first.number, second.number))
            for name in names
            if app in (None, name)
        },
        "signature": _added_and_removed(*columns),
    }


def _of_app(app: str, bundles: tuple[Bundle, Bundle], numbers: tuple[str, str]) -> dict[str, Any]:
    for bundle, other, number in zip(bundles, reversed(bundles), numbers, strict=True):
        if app not in other.facts:
            return {"only_in": number}
        if app in bundle.damaged:
            return {"damaged_in": number, "problem": bundle.damaged[app]}
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
    """Return what is compared of an application, in the order in which it is shown."""
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


def signature_columns(uri: str, version: Version) -> list[str]:
    """Return the columns of a version's signature, ``in`` or ``out`` before each, with types.

    Raises
    ------
    ModelError
        If the version has no signature that can be read.
    """
    import yaml

    where = f"version {version.number}"
    try:
        path = model_folder(uri, version) / MLMODEL
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return [
            f"{side} {column['name']}: {column['type']}"
            for side, key in (("in", "inputs"), ("out", "outputs"), ("parameter", "params"))
            for column in json.loads(content["signature"][key] or "[]")
        ]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
        raise ModelError(f"has no signature: {one_line(error)}", where) from None
