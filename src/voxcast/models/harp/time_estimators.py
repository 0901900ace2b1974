"""A time as a sum of parts, each predicted by a model of its own (HARP's custom estimator).

Training of a network is so many epochs and a start; a pipeline is the sum of its phases. Where a
part comes several times, one number of the run says how often.
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
    """What predicts one part: times in seconds from features."""

    def __call__(self, features: pd.DataFrame) -> np.ndarray:
        """Return times, shape (n,)."""


@dataclass(frozen=True)
class Part:
    """One part of a run: its name, and the feature that says how often it comes (None: once)."""

    name: str
    times: str | None = None


@dataclass(frozen=True)
class SumOfParts:
    """Fitted models of all parts; see `fit_parts`."""

    parts: tuple[Part, ...]
    models: Mapping[str, TimeModel]

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Return the time of the whole, shape (n,)."""
        total = np.zeros(len(features))
        for part in self.parts:
            often = 1.0 if part.times is None else _count(features, part.times)
            total += often * self.models[part.name](features)
        return total


def fit_parts(
    parts: tuple[Part, ...],
    features: pd.DataFrame,
    spent_s: Mapping[str, np.ndarray],
    fit: Callable[[pd.DataFrame, np.ndarray], TimeModel],
) -> SumOfParts:
    """Fit a model for each part.

    Parameters
    ----------
    spent_s : mapping of str to ndarray, shape (n,)
        Seconds that each run spent in a part altogether, all its repetitions.
    fit : callable
        ``(features, seconds of one repetition)`` to a model.

    Raises
    ------
    TableError
        If a number of repetitions is missing or not above zero.
    """
    models = {}
    for part in parts:
        often = 1.0 if part.times is None else _count(features, part.times)
        models[part.name] = fit(features, np.asarray(spent_s[part.name], dtype=float) / often)
    return SumOfParts(parts, models)


def _count(features: pd.DataFrame, name: str) -> np.ndarray:
    if name not in features:
        raise TableError("no such feature", name)
    often = features[name].to_numpy(dtype=float)
    if not (often > 0).all():
        raise TableError("is not above zero in every run", name)
    return often
