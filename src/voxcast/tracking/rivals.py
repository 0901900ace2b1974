"""The champion of an application beside a challenger, and two versions beside each other."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.errors import ModelError
from voxcast.features.split import MIN_SUBJECTS
from voxcast.files import canonical_json
from voxcast.models.selection import recipes
from voxcast.models.selection.comparison import Contender, compare_recipes, disturbed
from voxcast.models.selection.promotion_rule import Rival

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from voxcast.models.selection.comparison import Comparison
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.serving.bundle import Bundle
    from voxcast.serving.model_store import ModelStore
    from voxcast.serving.served_app import ServedApp
    from voxcast.tracking.challengers import AppFacts, Challenger


logger = logging.getLogger(__name__)

# Share of a champion's runs that must be on record. Disturbed runs may have been replaced since.
COMPLETE = 0.9


def readable_champion(store: ModelStore) -> Bundle | None:
    """Return the champion; None if it is missing, changed, or from another release."""
    number = store.pointer().champion
    return None if number is None else readable(store, number)


def readable(store: ModelStore, number: str) -> Bundle | None:
    """Return a version; None if it was changed, or this release cannot read it."""
    try:
        return store.open(number)
    except ModelError as error:
        logger.warning("version %s cannot be used: %s", number, error)
        return None


def rival_of(
    app: AppFacts,
    challenger: Challenger,
    present: Collection[str],
    bundle: Bundle | None,
) -> Rival | None:
    """Describe the champion of the application; None if it is not among those ``present``."""
    if app.name not in present:
        return None
    if bundle is None or not _can_be_loaded(bundle, app.name):
        return Rival(readable=False)
    served, table = bundle.apps[app.name], challenger.table
    champion = served.promotion
    rival = Rival(
        readable=True,
        same_model=challenger.is_model(served.forecaster_sha256),
        same_facts=_facts(app) == _facts(served),
        same_version=champion.app_version == app.version,
        calibrated=champion.calibrated,
    )
    if bundle.problem_of(app.name) is not None:
        return replace(rival, lists_its_runs=False)
    its_contender = contender_of(bundle, app.name, table)
    its_rows = its_contender.rows
    its_subjects = set(table["subject"][its_rows])
    noisy = disturbed(table)[~its_rows]
    return replace(
        rival,
        judged_as_fitted=its_contender.fitted is not None,
        # Subjects too few for a test side may be on that side now.
        is_included=champion.subjects <= max(len(its_subjects), MIN_SUBJECTS - 1),
        new_subjects=len(set(table["subject"]) - its_subjects),
        disturbed=champion.noisy_runs / champion.runs,
        new_disturbed=float(noisy.mean()) if len(noisy) else 0.0,
        contender=its_contender,
    )


def _facts(app: AppFacts | ServedApp) -> str:
    """Return the facts a forecaster is served with, in a form to compare."""
    allocations = [[c.device, c.cpus, c.gpus] for c in app.configurations]
    grids = [app.coarse_points, app.network_points]
    return canonical_json([app.parameters, allocations, grids, sorted(app.characteristics)])


def _can_be_loaded(bundle: Bundle, app: str) -> bool:
    try:
        bundle.forecaster(app)
    except (ModelError, OSError, ValueError, KeyError):
        return False
    return True


def contender_of(bundle: Bundle, app: str, table: pd.DataFrame) -> Contender:
    """Return a champion's recipe with its training runs that are in ``table``.

    If subjects that it learned from or more than a tenth of its runs are not, or this release has
    not its recipe, it is judged as it was fitted.
    """
    promotion = bundle.apps[app].promotion
    rows = table["cell_key"].isin(bundle.cell_keys(app)).to_numpy(dtype=bool)
    can_be_fitted = recipes.can_be_fitted(promotion.family, promotion.params)
    is_complete = (
        table["subject"][rows].nunique() >= promotion.subjects
        and rows.sum() >= COMPLETE * promotion.runs
    )
    fitted = None if can_be_fitted and is_complete else bundle.forecaster(app)
    seen = frozenset(bundle.subjects(app))
    return Contender(promotion.family, promotion.params, rows, fitted, seen)


def compare_versions(
    validation: Validation, app: str, first: Bundle, second: Bundle
) -> Comparison | None:
    """Compare an application's forecasters of two bundles, the first against the second."""
    return compare_recipes(
        validation,
        contender_of(first, app, validation.table),
        contender_of(second, app, validation.table),
    )
