"""A recipe: the name and parameters from which a family, or a blend of several, is fitted again.

The parameters of a blend are ``members``, each with its own parameters, and ``weights``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.models import point_model
from voxcast.models.families.zoo import FAMILIES
from voxcast.models.selection import blends
from voxcast.models.selection.blends import Blend
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd

    from voxcast.models.families.zoo import Params
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.selection.cross_validation import OutOfFold, Validation


def is_blend(params: Params) -> bool:
    """Whether parameters are those of a blend."""
    return set(params) == {"members", "weights"}


def can_be_fitted(name: str, params: Params) -> bool:
    """Whether this release knows the family, or all members, with just these parameters.

    Examples
    --------
    >>> can_be_fitted("tree", {"max_depth": 3, "min_samples_leaf": 2})
    True
    >>> can_be_fitted("tree", {"max_depth": 3, "criterion": "mse"})
    False
    """
    if is_blend(params):
        return all(can_be_fitted(n, own) for n, own in params["members"].items())
    return name in FAMILIES and set(params) == set(FAMILIES[name].defaults)


def fit(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    input_level: InputLevel,
    seed: int,
    targets: tuple[str, ...] = TARGETS,
    fitted: Mapping[str, PointModel] | None = None,
) -> PointModel | Blend:
    """Fit a recipe; see `voxcast.models.point_model.fit`.

    Parameters
    ----------
    fitted : mapping, optional
        Members that were fitted on this table already, by name.
    """
    if not is_blend(params):
        return point_model.fit(table, volumes, name, params, input_level, seed, targets)
    known = fitted or {}
    members = {
        member: known[member]
        if member in known
        else point_model.fit(table, volumes, member, own, input_level, seed, targets)
        for member, own in params["members"].items()
    }
    return Blend(name, members, blends.weights_of(params))


def out_of_fold(
    validation: Validation, name: str, params: Params, input_level: InputLevel
) -> OutOfFold:
    """Return what a recipe says of each run when it has not seen its subject."""
    if not is_blend(params):
        return validation.out_of_fold(name, params, input_level)
    found = {
        member: validation.out_of_fold(member, own, input_level)
        for member, own in params["members"].items()
    }
    return blends.out_of_fold(found, blends.weights_of(params))
