"""A champion and a challenger judged on the newest runs, which neither learned from.

The runs after those of the champion are halved by time: from the older half the challenger may
learn, on the newer one both are judged. It learns from all older runs, or, where the application
or the machines changed, only from those after the champion's: the window is chosen by the error
on the newest runs that it may learn from (Klinkenberg, Intelligent Data Analysis 8, 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from voxcast.laws.intervals import clustered_mean
from voxcast.models.families.family import FAMILIES
from voxcast.models.metrics import under_requests
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes
from voxcast.models.selection.comparison import JUDGED_TARGETS, comparison_of

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from voxcast.models.forecaster import Forecaster
    from voxcast.models.predictor import Predictor
    from voxcast.models.selection.comparison import Comparison
    from voxcast.models.selection.cross_validation import Validation

Window = Literal["all", "new"]
# The interval of the promotion rule never excludes zero with fewer than six.
MIN_SUBJECTS = 10  # to judge on, and as many new ones to learn from
CHOICE_RECIPE = "ridge"  # by which windows are told apart: fast, and fitted to few runs


@dataclass(frozen=True, eq=False)
class TimeSplit:
    """Runs by time; arrays of bool, shape (n_runs,).

    Attributes
    ----------
    new : ndarray
        Started after the last run of the champion, and not learned by it.
    newest : ndarray
        The newer half of these, by subject.
    training : ndarray
        What a challenger that is judged on the former may learn from: older runs, of other
        subjects.
    since : str
        Start of the first judged run.
    """

    new: np.ndarray
    newest: np.ndarray
    training: np.ndarray
    since: str


@dataclass(frozen=True)
class OutOfTime:
    """A comparison on the newest runs.

    Attributes
    ----------
    champion_bound_holds : bool
        Whether it is not shown that its upper bounds are exceeded more often than is allowed.
        Otherwise they are no reason to keep it.
    """

    comparison: Comparison
    champion_bound_holds: bool


def new_runs(table: pd.DataFrame, champion_keys: Collection[str]) -> np.ndarray:
    """Return which runs started after all that a champion learned from, shape (n_runs,)."""
    in_champion = table["cell_key"].isin(list(champion_keys)).to_numpy(dtype=bool)
    starts = table["started_at"].astype(str).to_numpy()
    last = max(starts[in_champion], default="")
    after: np.ndarray = ~in_champion & (starts > last)
    return after


def split_by_time(table: pd.DataFrame, champion_keys: Collection[str]) -> TimeSplit | None:
    """Split the runs of an application; None if too few subjects are new.

    Parameters
    ----------
    table : DataFrame
        Training runs with ``cell_key``, ``started_at`` and ``subject``.
    """
    new = new_runs(table, champion_keys)
    return _halved(table, new, np.ones(len(table), dtype=bool), MIN_SUBJECTS)


def _halved(
    table: pd.DataFrame, new: np.ndarray, usable: np.ndarray, minimum: int
) -> TimeSplit | None:
    """Split new runs where half of their subjects have had their last run."""
    subjects = table["subject"].astype(str).to_numpy()
    starts = table["started_at"].astype(str).to_numpy()
    last: dict[str, str] = {}
    for subject, start in zip(subjects[new], starts[new], strict=True):
        last[subject] = max(start, last.get(subject, ""))
    order = sorted(last, key=lambda subject: (last[subject], subject))
    older, newer = order[: len(order) // 2], order[len(order) // 2 :]
    if len(older) < minimum:
        return None
    newest = new & np.isin(subjects, newer)
    since = str(min(starts[newest]))
    # A subject of the older half may have a run after that time: it is from the future.
    training = usable & ~np.isin(subjects, newer) & ~(new & (starts >= since))
    return TimeSplit(new, newest, training, since)


def chosen_window(validation: Validation, split: TimeSplit) -> Window:
    """Return which runs a challenger learns from: ``all``, or the ``new`` ones alone.

    The latter only where that is shown to be better on runs that both could learn from.
    """
    table = validation.table
    inner = _halved(table, split.new & split.training, split.training, MIN_SUBJECTS // 2)
    if inner is None:
        return "all"
    errors = []
    for rows in (inner.training, inner.training & split.new):
        part = validation.part(np.flatnonzero(rows))
        if part.table["subject"].nunique() < 2:
            return "all"
        model = recipes.fit(part, CHOICE_RECIPE, FAMILIES[CHOICE_RECIPE].defaults, "volume")
        errors.append(model_errors(validation, np.flatnonzero(inner.newest), model).mean(axis=1))
    subjects = table["subject"][inner.newest].tolist()
    gain = clustered_mean(errors[0] - errors[1], subjects)
    return "new" if gain.bounded and gain.low > 0 else "all"


def window_rows(split: TimeSplit, window: Window, *, with_judged: bool) -> np.ndarray:
    """Return the positions of the runs of a window, with or without those that are judged on."""
    rows = np.ones(len(split.new), dtype=bool) if with_judged else split.training
    return np.flatnonzero(rows & split.new if window == "new" else rows)


def model_errors(validation: Validation, rows: np.ndarray, model: Predictor) -> np.ndarray:
    """Return absolute logarithmic errors, shape (n_rows, `JUDGED_TARGETS`)."""
    part = validation.part(rows)
    logs = model.predict(queries_of(part.table, part.volumes))
    return _errors(part, logs)


def judge(
    validation: Validation,
    rows: np.ndarray,
    challenger: Predictor,
    champion: Forecaster,
    upper_quantile: float,
    max_under_request: float,
) -> OutOfTime | None:
    """Judge a fitted challenger and a registered champion, both as they are, on some runs.

    Parameters
    ----------
    rows : ndarray of int
        Positions of the runs that neither learned from.
    upper_quantile, max_under_request : float
        Of the promotion rule.
    """
    part = validation.part(rows)
    predictions = champion.predict(
        queries_of(part.table, part.volumes),
        lower_quantile=1 - upper_quantile, upper_quantile=upper_quantile,
    )  # fmt: skip
    quantiles = np.array([[p.quantiles[t] for t in validation.targets] for p in predictions])
    comparison = comparison_of(
        part.table,
        model_errors(validation, rows, challenger),
        _errors(part, np.log(quantiles[:, :, 1])),
    )
    if comparison is None:
        return None
    subjects = part.table["subject"].tolist()
    actual = np.exp(part.actual())
    lowest = [
        under_requests(actual[:, k], quantiles[:, k, 2], subjects)[2][0]
        for k in range(len(validation.targets))
    ]
    return OutOfTime(comparison, max(lowest) < max_under_request)


def _errors(part: Validation, logs: np.ndarray) -> np.ndarray:
    targets = [part.targets.index(target) for target in JUDGED_TARGETS]
    errors: np.ndarray = np.abs(part.actual() - logs)[:, targets]
    return errors
