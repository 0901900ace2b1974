"""Runtime as a sum of phases, each predicted by a separate model (HARP's custom estimator).

Training a network is a start and a number of epochs; a pipeline is the sum of its phases. A
feature gives the number of repetitions of a repeated phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd


class TimeModel(Protocol):
    """Predicts the time of one phase in seconds from features."""

    def __call__(self, features: pd.DataFrame) -> np.ndarray:
        """Return times, shape (n,)."""


@dataclass(frozen=True)
class RepeatedPhase:
    """A phase of a run, and the feature with its number of repetitions (None: once)."""

    name: str
    count: str | None = None


@dataclass(frozen=True)
class PhaseSum:
    """Fitted models of all phases; see `fit_phases`."""

    phases: tuple[RepeatedPhase, ...]
    models: Mapping[str, TimeModel]

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Return the sum of the phases in seconds, shape (n,)."""
        total_s = np.zeros(len(features))
        for phase in self.phases:
            total_s += _repetitions(features, phase) * self.models[phase.name](features)
        return total_s


def fit_phases(
    phases: tuple[RepeatedPhase, ...],
    features: pd.DataFrame,
    spent_s: Mapping[str, np.ndarray],
    fit: Callable[[pd.DataFrame, np.ndarray], TimeModel],
) -> PhaseSum:
    """Fit a model for each phase.

    Parameters
    ----------
    spent_s : mapping of str to ndarray, shape (n,)
        Seconds that each run spent in a phase, all repetitions together.
    fit : callable
        From features and the seconds of one repetition to a model.

    Raises
    ------
    TableError
        If a number of repetitions is missing or not above zero.
    """
    models = {}
    for phase in phases:
        total_s = np.asarray(spent_s[phase.name], dtype=float)
        models[phase.name] = fit(features, total_s / _repetitions(features, phase))
    return PhaseSum(phases, models)


def _repetitions(features: pd.DataFrame, phase: RepeatedPhase) -> np.ndarray | float:
    if phase.count is None:
        return 1.0
    if phase.count not in features:
        raise TableError("no such feature", phase.count)
    repetitions = features[phase.count].to_numpy(dtype=float)
    if not (repetitions > 0).all():
        raise TableError("is not above zero in every run", phase.count)
    return repetitions
