"""Pipelines of a parcel study: regressors with a hyper-parameter search in the training fold.

All fits of a fold, of each output, candidate and inner fold, go through one parallel loop of
joblib.
"""

from __future__ import annotations

import functools
import importlib.metadata
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from voxcast.content_cache import ContentCache

FEATURES = ("means", "pairs")
INNER_FOLDS = 3
MOST_SELECTED = 1000  # features that linear models and trees see; support vectors see all
FOLD = "parcel_fold"  # function in the cache
VERSION = "1"
# Values of hyper-parameters, of which `candidates` combinations are drawn.
SPACES: dict[str, dict[str, list[float]]] = {
    "elastic_net": {"alpha": [0.01, 0.03, 0.1, 0.3], "l1_ratio": [0.1, 0.5, 0.9]},
    "support_vectors": {"C": [0.3, 1.0, 3.0, 10.0], "epsilon": [0.05, 0.1, 0.3]},
    "boosting": {"learning_rate": [0.03, 0.1], "max_depth": [1, 2, 3], "subsample": [0.5, 1.0]},
}


@dataclass(frozen=True)
class Setting:
    """What is fitted to region means.

    Attributes
    ----------
    features : str
        ``means``, or ``pairs`` for the differences of all pairs of regions.
    candidates : int
        Combinations of hyper-parameters that are tried.
    """

    pipeline: str
    features: str
    candidates: int
    folds: int

    def checked(self, participants: int) -> Setting:
        """Return it, or raise ConfigError with what is wrong."""
        for name, value, choices in (
            ("pipeline", self.pipeline, tuple(SPACES)),
            ("features", self.features, FEATURES),
        ):
            if value not in choices:
                then = f"choose from {', '.join(choices)}"
                raise ConfigError(f"unknown: {value!r}", name, then)
        if not 1 <= self.candidates <= 12:
            raise ConfigError(f"needs 1 to 12, not {self.candidates}", "candidates")
        most = participants // 2
        if not 2 <= self.folds <= most:
            raise ConfigError(f"needs 2 to {most}, half the participants", "folds")
        if participants - -(-participants // self.folds) < 2 * INNER_FOLDS:
            raise ConfigError(f"too few for {self.folds} folds", "participants")
        return self


@dataclass(frozen=True)
class FoldPredictions:
    """Predictions of an outer fold, participants x outputs.

    Attributes
    ----------
    inner : ndarray
        Of the training participants, each by a model that has not seen it: out of inner fold.
    outer : ndarray
        Of the test participants, by the model fitted to all training participants.
    """

    train: np.ndarray
    test: np.ndarray
    inner: np.ndarray
    outer: np.ndarray


def fold_predictions(
    means: np.ndarray,
    targets: np.ndarray,
    setting: Setting,
    fold: int,
    threads: int,
    content: dict[str, Any],
    cache: ContentCache | None,
    *,
    reuse: bool,
) -> FoldPredictions:
    """Return the predictions of an outer fold, and store them.

    Parameters
    ----------
    means, targets : ndarray
        Participants x regions, participants x outputs.
    content : dict
        What decides `means`.
    reuse : bool
        Whether predictions in the cache are used; a run that is timed fits all of them.
    """
    key = {
        "regions": content,
        "targets": targets.tolist(),
        "setting": vars(setting),
        "fold": fold,
        "scikit-learn": importlib.metadata.version("scikit-learn"),
    }
    train, test = _splits(len(means), setting.folds, seed=0)[fold]
    arrays = cache.get(FOLD, VERSION, key) if cache and reuse else None
    if arrays is None:
        inner, outer = _fitted(
            features_of(means, setting.features), targets, setting, train, test, threads
        )
        arrays = {"inner": inner, "outer": outer}
        if cache:
            cache.put(FOLD, VERSION, key, arrays)
    return FoldPredictions(train, test, **arrays)


def features_of(means: np.ndarray, features: str) -> np.ndarray:
    """Return the region means, or the differences of all pairs of them.

    Examples
    --------
    >>> import numpy as np
    >>> features_of(np.array([[1.0, 2.0, 4.0]]), "pairs").tolist()
    [[-1.0, -3.0, -2.0]]
    """
    import numpy as np

    if features == "means":
        return means
    first, second = np.triu_indices(means.shape[1], 1)
    differences: np.ndarray = means[:, first] - means[:, second]
    return differences


def r_squared(actual: np.ndarray, predicted: np.ndarray, reference: np.ndarray) -> float:
    """Return the share of squared error saved over the mean of `reference`, over all outputs.

    All are participants x outputs; the reference is the training participants.
    """
    spread = ((actual - reference.mean(0)) ** 2).sum(0)
    return float((1 - ((actual - predicted) ** 2).sum(0) / spread).mean())


def _fitted(
    features: np.ndarray,
    targets: np.ndarray,
    setting: Setting,
    train: np.ndarray,
    test: np.ndarray,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np
    from sklearn.model_selection import ParameterSampler
    from sklearn.utils.parallel import Parallel, delayed  # joblib

    candidates = list(
        ParameterSampler(SPACES[setting.pipeline], setting.candidates, random_state=0)
    )
    splits = _splits(len(train), INNER_FOLDS, seed=1)
    outputs = range(targets.shape[1])
    fit = delayed(functools.partial(_predicted, setting.pipeline, features))
    with Parallel(n_jobs=threads) as parallel:
        fits = [
            fit(targets[train[rows], output], candidate, train[rows], train[others])
            for output in outputs
            for candidate in candidates
            for rows, others in splits
        ]
        flat = iter(parallel(fits))
        by_candidate = np.empty((len(outputs), len(candidates), len(train)))
        for output in outputs:
            for number in range(len(candidates)):
                for _, others in splits:
                    by_candidate[output, number, others] = next(flat)
        errors = ((by_candidate - targets[train].T[:, None]) ** 2).mean(2)
        best = errors.argmin(1)
        outer = parallel(
            fit(targets[train, output], candidates[best[output]], train, test)
            for output in outputs
        )
    return by_candidate[outputs, best].T, np.array(outer).T


def _predicted(
    pipeline: str,
    features: np.ndarray,
    target: np.ndarray,
    candidate: dict[str, float],
    train: np.ndarray,
    test: np.ndarray,
) -> np.ndarray:
    """Fit to the rows `train`, whose target is given, and predict the rows `test`."""
    from sklearn.exceptions import ConvergenceWarning

    model = _model(pipeline, candidate, features.shape[1])
    scale = target.std() or 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of candidates that are not chosen
        model.fit(features[train], (target - target.mean()) / scale)
    predicted: np.ndarray = model.predict(features[test]) * scale + target.mean()
    return predicted


def _model(pipeline: str, candidate: dict[str, float], features: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.feature_selection import SelectKBest, f_regression
    from sklearn.linear_model import ElasticNet
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    if pipeline == "support_vectors":
        return make_pipeline(StandardScaler(), SVR(**candidate))
    steps = [StandardScaler()]
    if features > MOST_SELECTED:
        steps.append(SelectKBest(f_regression, k=MOST_SELECTED))
    if pipeline == "elastic_net":
        return make_pipeline(*steps, ElasticNet(**candidate, max_iter=500))
    trees = GradientBoostingRegressor(
        **candidate, n_estimators=50, max_features="sqrt", random_state=0
    )
    return make_pipeline(*steps, trees)


def _splits(rows: int, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import KFold

    return list(KFold(folds, shuffle=True, random_state=seed).split(range(rows)))
