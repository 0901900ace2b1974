"""The champion of an application beside a challenger, and two versions beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import ModelError
from voxcast.files import canonical_json
from voxcast.models.selection import recipes
from voxcast.models.selection.comparison import Contender, compare, disturbed
from voxcast.models.selection.promotion_rule import Rival
from voxcast.tracking import registry

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.models.selection.comparison import Comparison
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.serving.bundle import Bundle, ServedApp
    from voxcast.tracking.challengers import AppFacts, Challenger


def readable_bundle(version: registry.Version) -> Bundle | None:
    """Return the bundle of a version; None if this release cannot read it."""
    try:
        return registry.bundle_of(version.number)
    except ModelError:
        return None


def rival_of(
    app: AppFacts,
    challenger: Challenger,
    current: registry.Version | None,
    bundle: Bundle | None,
) -> Rival | None:
    """Describe the champion of the application; None if it has none."""
    if current is None or (bundle is not None and app.name not in bundle.apps):
        return None
    if bundle is None or not _can_be_loaded(bundle, app.name):
        return Rival(readable=False)
    served, table = bundle.apps[app.name], challenger.table
    champion = served.promotion
    its_rows = contender_of(bundle, app.name, table).rows
    its_subjects = set(table["subject"][its_rows])
    noisy = disturbed(table)[~its_rows]
    return Rival(
        readable=True,
        same_model=served.forecaster_sha256 == challenger.forecaster_sha256,
        same_facts=_facts(app) == _facts(served),
        same_version=champion.app_version == app.version,
        can_be_fitted=recipes.can_be_fitted(champion.family, champion.params),
        calibrated=champion.calibrated,
        subjects=champion.subjects,
        subjects_on_record=len(its_subjects),
        new_subjects=len(set(table["subject"]) - its_subjects),
        new_disturbed=float(noisy.mean()) if len(noisy) else 0.0,
    )


def _facts(app: AppFacts | ServedApp) -> str:
    """Return what a forecaster is served with, in a form to compare."""
    allocations = [[c.device, c.cpus, c.gpus] for c in app.configurations]
    return canonical_json([app.parameters, allocations, app.coarse_points, app.network_points])


def _can_be_loaded(bundle: Bundle, app: str) -> bool:
    try:
        bundle.forecaster(app)
    except (ModelError, OSError, ValueError, KeyError):
        return False
    return True


def contender_of(bundle: Bundle, app: str, table: pd.DataFrame) -> Contender:
    """Return a champion's recipe with its training runs that are in ``table``."""
    promotion = bundle.apps[app].promotion
    rows = table["cell_key"].isin(bundle.cell_keys(app)).to_numpy(dtype=bool)
    return Contender(promotion.family, promotion.params, rows)


def compare_versions(
    validation: Validation, app: str, first: Bundle, second: Bundle
) -> Comparison | None:
    """Compare an application's forecasters of two bundles, the first against the second.

    Raises
    ------
    ModelError
        If this release cannot fit the recipe of one of them.
    """
    contenders = []
    for bundle in (first, second):
        contender = contender_of(bundle, app, validation.table)
        if not recipes.can_be_fitted(contender.family, contender.params):
            raise ModelError("its recipe is of another release", f"{app}: {contender.family}")
        contenders.append(contender)
    return compare(validation, contenders[0], contenders[1])
