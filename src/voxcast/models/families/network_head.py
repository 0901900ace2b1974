"""The head of the network: which estimator learns from header and estimates, and the search space.

The network's estimates of the contents have the names of the contents, so a head is an estimator
of another family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.models.families import estimators
from voxcast.models.families.regressors import Scale, TabularRegressor
from voxcast.models.families.trunk_files import OTHERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import optuna

    from voxcast.models.families.volume_regressor import VolumeRegressor

# Estimator, its searched parameters, and the fixed ones.
HEADS: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
    "ridge": (estimators.ridge, ("alpha",), {}),
    "gaussian_process": (estimators.gaussian_process, ("length", "noise"), {"linear": True}),
}
# Passes of the trunk over the runs take minutes and are not searched.
TRAINING = {"start": "pretrained", "epochs": 0, "learning_rate": 1e-3}
DEFAULTS = {"head": "ridge", "alpha": 0.1, "length": 3.0, "noise": 0.05, **TRAINING}
# The estimates that the head sees: the sizes. Without pretraining the network gives its outputs
# a meaning of its own, and the head sees all.
SIZE_ESTIMATES = {
    "relative": ("content.foreground_megavoxels",),
    "log": ("content.log_foreground_voxels", "content.foreground_megavoxels"),
}
ALL_ESTIMATES = ("content.log_foreground_voxels", *(f"content.{name}" for name in OTHERS))


def suggest(trial: optuna.Trial) -> dict[str, Any]:
    """Draw the parameters of a network."""
    return {
        "head": trial.suggest_categorical("head", list(HEADS)),
        "alpha": trial.suggest_float("alpha", 1e-2, 1e2, log=True),
        "length": trial.suggest_float("length", 0.5, 20.0, log=True),
        "noise": trial.suggest_float("noise", 1e-3, 0.5, log=True),
        **TRAINING,
    }


def scale_of(params: dict[str, Any]) -> Scale:
    """Return the scale on which the head is fitted: sizes add, for a ridge."""
    return "relative" if params["head"] == "ridge" else "log"


def network_regressor(
    params: dict[str, Any], seed: int, columns: Sequence[str]
) -> VolumeRegressor:
    """Return an unfitted network with its head."""
    from voxcast.models.families.volume_regressor import VolumeRegressor

    estimator, searched, others = HEADS[params["head"]]
    head_params = {**others, **{name: params[name] for name in searched}}
    scale = scale_of(params)
    pretrained = params["start"] == TRAINING["start"]
    estimates = SIZE_ESTIMATES[scale] if pretrained else ALL_ESTIMATES
    head = TabularRegressor(
        lambda: estimator(head_params, seed, [*columns, *estimates]), scale, "ridge__sample_weight"
    )
    training = {name: params[name] for name in TRAINING}
    return VolumeRegressor(head, estimates, seed=seed, **training)
