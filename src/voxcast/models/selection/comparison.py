"""Two recipes on the same held-out subjects, each fitted to its training runs alone.

A champion itself cannot be compared with a challenger on runs that it was trained on. So both
recipes are fitted again, fold by fold, to the training runs of each without the held-out subjects,
and both predict the same held-out runs. Where that is not possible, because its runs are not all
on record, the champion predicts as it is, and both are judged on the subjects that it did not
learn from. The folds differ from the folds of the tuning, on which the challenger was selected and
would look better than it is. Subjects count the same, however many runs they have; a disturbed run
counts `NOISY_WEIGHT` of an undisturbed one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import Interval, cautious_mean, clustered_mean
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from voxcast.models.families.family import Params
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.selection.cross_validation import Validation

NOISY_WEIGHT = 0.25
JUDGED_TARGETS = ("cpu_s", "peak_rss_bytes")
OTHER_FOLDS = 104_729  # is added to the seed of the tuning


@dataclass(frozen=True, eq=False)
class Contender:
    """A recipe and its training runs.

    Attributes
    ----------
    family, params
        The recipe, see `voxcast.models.selection.recipes`.
    rows : ndarray of bool, shape (n_runs,)
        Runs of the table that it learns from.
    fitted : Forecaster, optional
        The fitted model, to be judged as it is on subjects that it did not learn from.
    seen : frozenset of str
        Subjects that the fitted model learned from, beside the subjects of `rows`: they may have
        been measured again.
    """

    family: str
    params: Params
    rows: np.ndarray
    fitted: Forecaster | None = None
    seen: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Comparison:
    """Mean absolute logarithmic errors of CPU time and memory on the same held-out runs.

    Attributes
    ----------
    challenger, champion : Interval
        Errors.
    gain : Interval
        Error of the champion minus the challenger's, run by run, see
        `voxcast.laws.intervals.cautious_mean`.
    undisturbed_gain : Interval
        The same over undisturbed runs alone; of no subject if there are none.
    gain_by_target : dict of str to Interval
        The gain in each target by itself.
    """

    challenger: Interval
    champion: Interval
    gain: Interval
    undisturbed_gain: Interval
    gain_by_target: dict[str, Interval] = field(default_factory=dict)

    @property
    def worse_targets(self) -> tuple[str, ...]:
        """Targets in which the interval of the gain lies below zero."""
        return tuple(
            target
            for target, gain in self.gain_by_target.items()
            if gain.bounded and gain.high < 0
        )

    @property
    def subjects(self) -> int:
        """Number of subjects on which both were compared."""
        return self.gain.subjects


def compare(
    validation: Validation, challenger: Contender, champion: Contender
) -> Comparison | None:
    """Compare two recipes fold by fold, on other folds than the tuning used.

    Runs for which one of them has no prediction are left out for both.

    Returns
    -------
    Comparison or None
        None if no run is left.
    """
    other = replace(validation, seed=validation.seed + OTHER_FOLDS)
    errors = [cross_fitted_errors(other, c) for c in (challenger, champion)]
    return comparison_of(validation.table, errors[0], errors[1])


def comparison_of(
    table: pd.DataFrame, challenger_errors: np.ndarray, champion_errors: np.ndarray
) -> Comparison | None:
    """Compare two models by their errors on the same runs, shape (n_runs, `JUDGED_TARGETS`).

    Runs for which one of them has no prediction (NaN) are left out for both; None if none is left.
    """
    errors = (challenger_errors, champion_errors)
    both = np.isfinite(errors[0]).all(axis=1) & np.isfinite(errors[1]).all(axis=1)
    if not both.any():
        return None
    table = table[both]
    weights = run_weights(table)
    challenger_errors, champion_errors = (e[both] for e in errors)
    subjects = table["subject"].tolist()
    by_target = champion_errors - challenger_errors
    gains = by_target.mean(axis=1)
    calm = ~disturbed(table)
    return Comparison(
        clustered_mean(challenger_errors.mean(axis=1), subjects, weights),
        clustered_mean(champion_errors.mean(axis=1), subjects, weights),
        cautious_mean(gains, subjects, weights),
        cautious_mean(gains[calm], table["subject"][calm].tolist(), run_weights(table[calm])),
        {
            target: cautious_mean(by_target[:, k], subjects, weights)
            for k, target in enumerate(JUDGED_TARGETS)
        },
    )


def cross_fitted_errors(validation: Validation, contender: Contender) -> np.ndarray:
    """Return the errors of each run by a model fitted without its subject.

    The shape is (n_runs, `JUDGED_TARGETS`). NaN where no training run is left, and for the
    subjects of a fitted model.
    """
    targets = [validation.targets.index(target) for target in JUDGED_TARGETS]
    actual = validation.actual()
    if contender.fitted is not None:
        trained_on = {*validation.table["subject"][contender.rows], *contender.seen}
        logs = _log_predictions_of_unseen(validation, contender.fitted, trained_on)
    else:
        logs = np.full(actual.shape, np.nan)
        for train, held_out in validation.folds():
            rows = train[contender.rows[train]]
            if not len(rows):
                continue
            model = recipes.fit(
                validation.part(rows), contender.family, contender.params, "volume"
            )
            outer = validation.part(held_out)
            logs[held_out] = model.predict(queries_of(outer.table, outer.volumes))
    errors: np.ndarray = np.abs(actual - logs)[:, targets]
    return errors


def _log_predictions_of_unseen(
    validation: Validation, forecaster: Forecaster, trained_on: Collection[str]
) -> np.ndarray:
    """Return the medians that a fitted model predicts; NaN for the subjects in ``trained_on``."""
    table = validation.table
    seen = table["subject"].isin(list(trained_on)).to_numpy(dtype=bool)
    predictions = forecaster.predict(queries_of(table, validation.volumes))
    logs = np.log([[p.quantiles[target][1] for target in validation.targets] for p in predictions])
    return np.where(seen[:, None], np.nan, logs)


def disturbed(table: pd.DataFrame) -> np.ndarray:
    """Return which runs were measured beside other work, shape (n_runs,)."""
    if "noisy" not in table:
        return np.zeros(len(table), dtype=bool)
    return table["noisy"].fillna(value=False).to_numpy(dtype=bool)


def run_weights(table: pd.DataFrame) -> np.ndarray:
    """Return the weight of each run, shape (n_runs,); an undisturbed subject has weight 1."""
    runs_of_subject = table.groupby("subject")["subject"].transform("size").to_numpy()
    weights: np.ndarray = np.where(disturbed(table), NOISY_WEIGHT, 1.0) / runs_of_subject
    return weights
