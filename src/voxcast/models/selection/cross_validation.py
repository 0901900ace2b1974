"""Cross-validation grouped by subject: training runs, their volumes, and the folds over them."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.table import rows_of
from voxcast.files import canonical_json
from voxcast.models import point_model
from voxcast.models.families.zoo import Params, family
from voxcast.models.metrics import scores
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pandas as pd

    from voxcast.models.point_model import InputLevel

Metrics = dict[str, float]


@dataclass(frozen=True)
class OutOfFold:
    """What models said of runs whose subjects they had not seen.

    Attributes
    ----------
    logs : ndarray, shape (n_runs, targets)
        Predicted logarithms.
    spread : ndarray, shape (n_runs, targets, 2)
        How far each may be off below and above, see
        `voxcast.models.families.regressors.Regressor.spread`.
    """

    logs: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True)
class Validation:
    """Training runs with the folds that every family is judged on.

    Attributes
    ----------
    table : DataFrame
        Completed runs of the training side.
    volumes : ndarray or None, shape (n_runs, p, p, p)
        Small volume of each run.
    n_folds : int
        At most as many folds as subjects are made.
    seed : int
        Of the folds, and of everything random in the fits.
    targets : tuple of str
        Columns to predict.
    cache : FoldCache
        What was fitted before.
    censored : collection of (app, subject)
        Runs that were ended before they were done: no labels, but not to be forgotten where a
        bound is calibrated.
    """

    table: pd.DataFrame
    volumes: np.ndarray | None
    n_folds: int
    seed: int
    targets: tuple[str, ...] = TARGETS
    cache: FoldCache = field(default_factory=FoldCache)
    censored: Collection[tuple[str, str]] = ()

    def part(self, rows: np.ndarray) -> Validation:
        """Return the validation of some of the runs, by position, for folds within a fold."""
        volumes = None if self.volumes is None else self.volumes[rows]
        table = self.table.iloc[rows].reset_index(drop=True)
        left = set(self.table["subject"]) - set(table["subject"])
        ended = {(app, subject) for app, subject in self.censored if subject not in left}
        return Validation(table, volumes, self.n_folds, self.seed, self.targets, self.cache, ended)

    def actual(self) -> np.ndarray:
        """Return the logarithms of the measured targets, shape (n_runs, targets)."""
        return point_model.actual_logs(self.table, self.targets)

    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (train, held out) positions; a subject is never on both sides of a fold."""
        from sklearn.model_selection import GroupKFold

        subjects = self.table["subject"].to_numpy()
        count = min(self.n_folds, len(np.unique(subjects)))
        splitter = GroupKFold(n_splits=count, shuffle=True, random_state=self.seed)
        return list(splitter.split(np.zeros(len(subjects)), groups=subjects))

    @functools.cached_property
    def data_sha256(self) -> str:
        """Hash of the table and of the volumes: what fits depend on beside their settings."""
        digest = hashlib.sha256()
        for name in sorted(self.table.columns):
            digest.update(name.encode() + b"\0")
            digest.update(canonical_json([_plain(value) for value in self.table[name]]).encode())
        if self.volumes is not None:
            digest.update(np.ascontiguousarray(self.volumes).tobytes())
        return digest.hexdigest()

    def predictions(
        self, name: str, params: Params, input_level: InputLevel
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Give, fold by fold, held-out positions, predicted logarithms and their spread."""
        seen = self.volumes if family(name).needs_volume else None
        of: dict[str, object] = {"data": self.data_sha256, "family": name, "params": params}
        of |= {"input_level": input_level, "folds": self.n_folds, "seed": self.seed}
        of |= {"targets": list(self.targets)}
        for number, (train, held_out) in enumerate(self.folds()):
            known = self.cache.get({**of, "fold": number})
            if known is None:
                known = self._fit(name, params, input_level, seen, train, held_out)
                self.cache.put({**of, "fold": number}, *known)
            yield held_out, *known

    def _fit(
        self,
        name: str,
        params: Params,
        input_level: InputLevel,
        volumes: np.ndarray | None,
        train: np.ndarray,
        held_out: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        fitted = point_model.fit(
            self.table.iloc[train],
            None if volumes is None else volumes[train],
            name,
            params,
            input_level,
            self.seed,
            self.targets,
        )
        asked = self.table.iloc[held_out]
        small = None if volumes is None else volumes[held_out]
        return (
            point_model.predict_table(fitted, asked, small),
            fitted.spread(rows_of(asked), small),
        )

    def out_of_fold(self, name: str, params: Params, input_level: InputLevel) -> OutOfFold:
        """Return what is said of each run by a model that did not see its subject."""
        shape = len(self.table), len(self.targets)
        found = OutOfFold(np.full(shape, np.nan), np.ones((*shape, 2)))
        for held_out, logs, spread in self.predictions(name, params, input_level):
            found.logs[held_out], found.spread[held_out] = logs, spread
        return found


def error_metrics(
    table: pd.DataFrame, predicted: np.ndarray, targets: Sequence[str] = TARGETS
) -> Metrics:
    """Return ``TARGET/METRIC`` for predicted logarithms, and ``objective``, what tuning minimises.

    The objective is the mean absolute logarithmic error, averaged over what is learned: wall time
    follows from CPU time and carries the machine's noise.
    """
    found: Metrics = {}
    for k, target in enumerate(targets):
        for metric, value in scores(table[target], np.exp(predicted[:, k])).items():
            found[f"{target}/{metric}"] = value
    actual = point_model.actual_logs(table, targets)
    found["objective"] = objective(actual, predicted, targets)
    return found


def objective(
    actual: np.ndarray, predicted: np.ndarray, targets: Sequence[str] = TARGETS
) -> float:
    """Return the objective of `error_metrics` from logarithms, shape (n, targets)."""
    learned = [list(targets).index(target) for target in point_model.regressed(targets)]
    return float(np.abs(actual - predicted)[:, learned].mean())


def _plain(value: object) -> object:
    """Return a cell as JSON takes it; numbers to the last bit."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value.hex()
    return str(value)
