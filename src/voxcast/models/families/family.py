"""The families of models with their defaults and search spaces."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.models.families import network, regressors
from voxcast.models.families.encoder import NO_COLUMN
from voxcast.models.families.regressors import Scale, TabularRegressor

if TYPE_CHECKING:
    import optuna

    from voxcast.features.phase_labels import PhaseLabels

Params = dict[str, Any]
Regressor = TabularRegressor | network.VolumeRegressor

# The sizes that determine the work, for multiplicative and for additive laws.
_SIZES = {
    "log": (
        "header.log_voxels",
        "header.log_working",
        "content.log_foreground_voxels",
        "allocation.",
        "parameter.",
    ),
    "relative": (
        "header.megavoxels",
        "content.foreground_megavoxels",
        "allocation.",
        "parameter.",
    ),
}
# Sizes as logarithms, and what multiplies a time.
_PHASE_COLUMNS = (
    "header.log_voxels", "header.log_working", "content.", "allocation.", "parameter.",
)  # fmt: skip


_PROCESS: Params = {"length": 3.0, "noise": 0.05, "linear": True, "each": False}
_BOOSTED: Params = {
    "alpha": 1.0, "n_estimators": 200, "learning_rate": 0.1, "max_leaf_nodes": 6,
    "min_samples_leaf": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A kind of model: how to build it, and its search space.

    Attributes
    ----------
    defaults : dict
        The first trial; also the names of all parameters.
    suggest : callable
        Function that draws parameters from an Optuna trial.
    estimator : callable or None
        ``(params, seed, columns)`` to an unfitted scikit-learn estimator; None for the network and
        for sums of phases.
    only : callable
        ``params`` to names or prefixes of the numeric columns it may use (empty: all).
    scale, weights
        See `TabularRegressor`; the scale may be one of the parameters.
    extrapolates : bool
        Whether its trend continues out of range.
    needs_phases : bool
        Whether it learns from CPU times by phase.
    most_rows : int or None
        Maximum number of rows; the family is not fitted to larger tables.
    second : dict or None
        The second trial, where the defaults may be far from the best.
    """

    name: str
    defaults: Params
    suggest: Callable[[optuna.Trial], Params]
    estimator: Callable[[Params, int, Sequence[str]], Any] | None = None
    only: Callable[[Params], tuple[str, ...]] = lambda _: ()
    scale: Callable[[Params], Scale] = lambda _: "log"
    weights: str = "sample_weight"
    baseline: bool = False
    needs_volume: bool = False
    extrapolates: bool = False
    max_rows: int | None = None
    second: Params | None = None
    needs_phases: bool = False

    def build(
        self,
        params: Params,
        seed: int,
        columns: Sequence[str],
        labels: PhaseLabels | None = None,
        cpu: int = 0,
    ) -> Regressor:
        """Return an unfitted regressor of ``columns``.

        Parameters
        ----------
        labels, cpu
            See `voxcast.models.families.phase_sum.PhasesRegressor`.
        """
        if self.needs_phases:
            from voxcast.models.families.phase_sum import PhasesRegressor

            return PhasesRegressor(columns, labels, cpu, **params)
        if self.needs_volume:
            return network.network_regressor(params, seed, columns)
        if not columns:  # none of them varies among the runs
            return TabularRegressor(functools.partial(regressors.median, params, seed, columns))
        estimator = self.estimator
        assert estimator is not None  # noqa: S101
        return TabularRegressor(
            functools.partial(estimator, params, seed, columns), self.scale(params), self.weights
        )

    def load(self, folder: Path) -> Regressor:
        """Read a fitted regressor of this family."""
        if self.needs_volume:
            return network.VolumeRegressor.load(folder)
        return TabularRegressor.load(folder)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("median", {}, lambda t: {}, regressors.median, lambda p: NO_COLUMN, baseline=True),
        Family(
            "voxels", {}, lambda t: {}, regressors.linear, lambda p: ("header.megavoxels",),
            scale=lambda p: "raw", baseline=True,
        ),
        Family(
            "law", {}, lambda t: {}, regressors.law, lambda p: regressors.LAW_COLUMNS,
            scale=lambda p: "raw", baseline=True, extrapolates=True,
        ),
        Family(
            "ridge",
            {"alpha": 0.1, "columns": "sizes", "scale": "relative", "products": False},
            lambda t: {
                "alpha": t.suggest_float("alpha", 1e-3, 1e2, log=True),
                "columns": t.suggest_categorical("columns", ["sizes", "all"]),
                "scale": t.suggest_categorical("scale", ["relative", "log"]),
                "products": t.suggest_categorical("products", [False, True]),
            },
            regressors.ridge,
            lambda p: _SIZES[p["scale"]] if p["columns"] == "sizes" else (),
            scale=lambda p: p["scale"],
            weights="ridge__sample_weight",
            extrapolates=True,
            second={"alpha": 0.1, "columns": "all", "scale": "log", "products": False},
        ),
        Family(
            "extra_trees",
            {"n_estimators": 60, "min_samples_leaf": 1, "max_features": 1.0},
            lambda t: {
                "n_estimators": t.suggest_int("n_estimators", 30, 120, step=30),
                "min_samples_leaf": t.suggest_int("min_samples_leaf", 1, 6),
                "max_features": t.suggest_float("max_features", 0.2, 1.0),
            },
            regressors.extra_trees,
        ),
        Family(
            "boosted",
            _BOOSTED,
            lambda t: {
                "alpha": t.suggest_float("alpha", 1e-1, 1e4, log=True),
                "n_estimators": t.suggest_int("n_estimators", 50, 300, step=50),
                "learning_rate": t.suggest_float("learning_rate", 0.02, 0.3, log=True),
                "max_leaf_nodes": t.suggest_int("max_leaf_nodes", 3, 31),
                "min_samples_leaf": t.suggest_int("min_samples_leaf", 2, 20),
            },
            regressors.boosted,
            extrapolates=True,
            second={**_BOOSTED, "alpha": 1e4, "max_leaf_nodes": 8},  # trees, hardly any trend
        ),
        Family(
            "mlp",
            {"units": 16, "layers": 1, "alpha": 1.0},
            lambda t: {
                "units": t.suggest_int("units", 8, 64, log=True),
                "layers": t.suggest_int("layers", 1, 2),
                "alpha": t.suggest_float("alpha", 1e-3, 30.0, log=True),
            },
            regressors.mlp,
        ),
        Family(
            "gaussian_process",
            _PROCESS,
            lambda t: {
                "length": t.suggest_float("length", 0.5, 20.0, log=True),
                "noise": t.suggest_float("noise", 1e-3, 0.5, log=True),
                "linear": t.suggest_categorical("linear", [True, False]),
                "each": t.suggest_categorical("each", [True, False]),
            },
            regressors.gaussian_process,
            max_rows=1500,
            second={"length": 1.0, "noise": 0.1, "linear": True, "each": True},
        ),
        Family(
            "phases",
            {"powers": True},
            lambda t: {"powers": t.suggest_categorical("powers", [True, False])},
            only=lambda p: _PHASE_COLUMNS,
            extrapolates=True,
            needs_phases=True,
        ),
        Family(
            "cnn",
            network.DEFAULTS,
            network.suggest,
            only=lambda p: _SIZES["relative"] if p["head"] == "ridge" else (),
            scale=network.scale_of,
            needs_volume=True,
        ),
    )
}  # fmt: skip


def family(name: str) -> Family:
    """Return a family by name.

    Raises
    ------
    ModelError
        If the family is unknown.
    """
    if name not in FAMILIES:
        raise ModelError(f"unknown model family; choose from {', '.join(FAMILIES)}", name)
    return FAMILIES[name]
