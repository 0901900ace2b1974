"""The zoo: families of models with their defaults and search spaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.models.regressors import Regressor, Scale, TabularRegressor

if TYPE_CHECKING:
    import optuna

Params = dict[str, Any]

# The sizes that decide the work, for laws that multiply and for laws that add up.
_SIZES = {
    "log": ("header.log_voxels", "content.log_foreground_voxels", "allocation."),
    "relative": ("header.megavoxels", "content.foreground_megavoxels", "allocation."),
}


@dataclass(frozen=True)
class Family:
    """A kind of model: how to build it and what to search.

    Attributes
    ----------
    defaults : dict
        The first trial; also the names of all parameters.
    suggest : callable
        Draws parameters from an Optuna trial.
    estimator : callable or None
        ``(params, seed)`` to an unfitted scikit-learn estimator; None for the network.
    only : callable
        ``params`` to the numeric columns it may see (empty: all).
    scale, weights
        See `TabularRegressor`; the scale may be one of the parameters.
    """

    name: str
    defaults: Params
    suggest: Callable[[optuna.Trial], Params]
    estimator: Callable[[Params, int], Any] | None = None
    only: Callable[[Params], tuple[str, ...]] = lambda _: ()
    scale: Callable[[Params], Scale] = lambda _: "log"
    weights: str = "sample_weight"
    baseline: bool = False
    needs_volume: bool = False

    def build(self, params: Params, seed: int) -> Regressor:
        """Return an unfitted regressor."""
        if self.estimator is None:
            from voxcast.models.volume_regressor import VolumeRegressor

            return VolumeRegressor(seed=seed, **params)
        estimator = self.estimator
        return TabularRegressor(lambda: estimator(params, seed), self.scale(params), self.weights)

    def load(self, folder: Path) -> Regressor:
        """Read a fitted regressor of this family."""
        if self.estimator is None:
            from voxcast.models.volume_regressor import VolumeRegressor

            return VolumeRegressor.load(folder)
        return TabularRegressor.load(folder)


def _median(params: Params, seed: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    # On no column but the application's, a tree of absolute error is the median.
    return DecisionTreeRegressor(criterion="absolute_error", random_state=seed)


def _linear(params: Params, seed: int) -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def _ridge(params: Params, seed: int) -> Any:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), Ridge(alpha=params["alpha"]))


def _tree(params: Params, seed: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(**params, random_state=seed)


def _forest(params: Params, seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(**params, random_state=seed, n_jobs=1)


def _boosting(params: Params, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(**params, random_state=seed, early_stopping=False)


def _mlp(params: Params, seed: int) -> Any:
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    perceptron = MLPRegressor(
        hidden_layer_sizes=(params["units"],) * params["layers"],
        alpha=params["alpha"],
        solver="lbfgs",  # full-batch: the histories are small and it needs no learning rate
        max_iter=300,
        random_state=seed,
    )
    return make_pipeline(StandardScaler(), perceptron)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("median", {}, lambda t: {}, _median, lambda p: ("none.",), baseline=True),
        Family(
            "voxels", {}, lambda t: {}, _linear, lambda p: ("header.megavoxels",),
            scale=lambda p: "raw", baseline=True,
        ),
        Family(
            "ridge",
            {"alpha": 0.1, "columns": "sizes", "scale": "relative"},
            lambda t: {
                "alpha": t.suggest_float("alpha", 1e-3, 1e2, log=True),
                "columns": t.suggest_categorical("columns", ["sizes", "all"]),
                "scale": t.suggest_categorical("scale", ["relative", "log"]),
            },
            _ridge,
            lambda p: _SIZES[p["scale"]] if p["columns"] == "sizes" else (),
            scale=lambda p: p["scale"],
            weights="ridge__sample_weight",
        ),
        Family(
            "tree",
            {"max_depth": 6, "min_samples_leaf": 2},
            lambda t: {
                "max_depth": t.suggest_int("max_depth", 2, 12),
                "min_samples_leaf": t.suggest_int("min_samples_leaf", 1, 8),
            },
            _tree,
        ),
        Family(
            "forest",
            {"n_estimators": 60, "min_samples_leaf": 1, "max_features": 1.0},
            lambda t: {
                "n_estimators": t.suggest_int("n_estimators", 30, 120, step=30),
                "min_samples_leaf": t.suggest_int("min_samples_leaf", 1, 6),
                "max_features": t.suggest_float("max_features", 0.2, 1.0),
            },
            _forest,
        ),
        Family(
            "boosting",
            {"max_iter": 150, "learning_rate": 0.1, "max_leaf_nodes": 8, "min_samples_leaf": 4},
            lambda t: {
                "max_iter": t.suggest_int("max_iter", 50, 300, step=50),
                "learning_rate": t.suggest_float("learning_rate", 0.02, 0.3, log=True),
                "max_leaf_nodes": t.suggest_int("max_leaf_nodes", 3, 31),
                "min_samples_leaf": t.suggest_int("min_samples_leaf", 2, 20),
            },
            _boosting,
        ),
        Family(
            "mlp",
            {"units": 16, "layers": 1, "alpha": 1.0},
            lambda t: {
                "units": t.suggest_int("units", 8, 64, log=True),
                "layers": t.suggest_int("layers", 1, 2),
                "alpha": t.suggest_float("alpha", 1e-3, 30.0, log=True),
            },
            _mlp,
        ),
        Family(
            "cnn",
            {"width": 8, "epochs": 40, "learning_rate": 3e-3, "dropout": 0.1},
            lambda t: {
                "width": t.suggest_categorical("width", [4, 8]),
                "epochs": t.suggest_int("epochs", 20, 80, step=20),
                "learning_rate": t.suggest_float("learning_rate", 1e-3, 1e-2, log=True),
                "dropout": t.suggest_float("dropout", 0.0, 0.4),
            },
            needs_volume=True,
        ),
    )
}  # fmt: skip


def family(name: str) -> Family:
    """Return a family by name.

    Raises
    ------
    ModelError
        Listing the known names, if there is no such family.
    """
    if name not in FAMILIES:
        raise ModelError(f"unknown model family, known are {', '.join(FAMILIES)}", name)
    return FAMILIES[name]
