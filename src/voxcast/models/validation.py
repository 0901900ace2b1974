"""Cross-validation grouped by subject: training runs, their volumes, and the folds over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models import point_model
from voxcast.models.families import Params, family
from voxcast.models.metrics import scores
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.models.point_model import Level

Metrics = dict[str, float]


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
    """

    table: pd.DataFrame
    volumes: np.ndarray | None
    n_folds: int
    seed: int

    def part(self, rows: np.ndarray) -> Validation:
        """Return the validation of some of the runs, by position, for folds within a fold."""
        volumes = None if self.volumes is None else self.volumes[rows]
        table = self.table.iloc[rows].reset_index(drop=True)
        return Validation(table, volumes, self.n_folds, self.seed)

    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (train, held out) positions; a subject is never on both sides of a fold."""
        from sklearn.model_selection import GroupKFold

        subjects = self.table["subject"].to_numpy()
        count = min(self.n_folds, len(np.unique(subjects)))
        splitter = GroupKFold(n_splits=count, shuffle=True, random_state=self.seed)
        return list(splitter.split(np.zeros(len(subjects)), groups=subjects))

    def predictions(
        self, name: str, params: Params, level: Level
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give, fold by fold, the held-out positions and their predicted logarithms, (n, 3)."""
        seen = self.volumes if family(name).needs_volume else None
        for train, held_out in self.folds():
            fitted = point_model.fit(
                self.table.iloc[train],
                None if seen is None else seen[train],
                name,
                params,
                level,
                self.seed,
            )
            logs = point_model.predict_table(
                fitted, self.table.iloc[held_out], None if seen is None else seen[held_out]
            )
            yield held_out, logs

    def out_of_fold(self, name: str, params: Params, level: Level) -> np.ndarray:
        """Return each run's logarithms by a model that did not see its subject, (n_runs, 3)."""
        predicted = np.full((len(self.table), len(TARGETS)), np.nan)
        for held_out, logs in self.predictions(name, params, level):
            predicted[held_out] = logs
        return predicted


def error_metrics(table: pd.DataFrame, predicted: np.ndarray) -> Metrics:
    """Return ``TARGET/METRIC`` for predicted logarithms, and ``objective``, what tuning minimises.

    The objective is the mean absolute logarithmic error, averaged over CPU time and memory: wall
    time follows from CPU time and carries the machine's noise.
    """
    found: Metrics = {}
    for k, target in enumerate(TARGETS):
        for metric, value in scores(table[target], np.exp(predicted[:, k])).items():
            found[f"{target}/{metric}"] = value
    found["objective"] = objective(point_model.actual_logs(table), predicted)
    return found


def objective(actual: np.ndarray, predicted: np.ndarray) -> float:
    """Return the objective of `error_metrics` from logarithms, shape (n, 3)."""
    errors = np.abs(actual - predicted).mean(axis=0)
    return float((errors[0] + errors[2]) / 2)
