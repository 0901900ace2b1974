"""A recipe: the name and parameters from which a family, or a blend of several, is fitted.

The parameters of a blend are ``members``, each with its own parameters, and ``weights``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.point_model import blend, weighted_mean, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from voxcast.models.families.family import Params
    from voxcast.models.point_model import InputLevel, PointModel
    from voxcast.models.selection.cross_validation import Validation


def is_blend(params: Params) -> bool:
    """Whether parameters describe a blend."""
    return set(params) == {"members", "weights"}


def can_be_fitted(name: str, params: Params) -> bool:
    """Whether this release has the family, or all members, with exactly these parameters.

    Examples
    --------
    >>> can_be_fitted("mlp", {"units": 16, "layers": 1, "alpha": 1.0})
    True
    >>> can_be_fitted("mlp", {"units": 16, "layers": 1, "solver": "adam"})
    False
    """
    if is_blend(params):
        return all(can_be_fitted(n, member) for n, member in params["members"].items())
    return name in FAMILIES and set(params) == set(FAMILIES[name].defaults)


def fit(
    validation: Validation,
    name: str,
    params: Params,
    input_level: InputLevel,
    fitted: Mapping[str, PointModel] | None = None,
) -> PointModel:
    """Fit a recipe on all runs of a validation; see `voxcast.models.point_model.fit`.

    Parameters
    ----------
    fitted : mapping, optional
        Families already fitted on these runs, by name.
    """
    fitted_models = fitted or {}

    def single(family: str, family_params: Params) -> PointModel:
        if family in fitted_models:
            return fitted_models[family]
        return point_model.fit(
            validation.table, validation.volumes, family, family_params, input_level,
            validation.seed, validation.targets, validation.speeds, validation.stopped,
        )  # fmt: skip

    if not is_blend(params):
        return single(name, params)
    members = {member: single(member, p) for member, p in params["members"].items()}
    return blend(name, members, weights_of(params))


def out_of_fold(
    validation: Validation, name: str, params: Params, input_level: InputLevel
) -> np.ndarray:
    """Return the out-of-fold predictions of a recipe, see `Validation.out_of_fold`."""
    if not is_blend(params):
        return validation.out_of_fold(name, params, input_level)
    members = {
        member: validation.out_of_fold(member, member_params, input_level)
        for member, member_params in params["members"].items()
    }
    return weighted_mean(members, weights_of(params))
