"""Two recipes on the same held-out subjects, each fitted to its training runs alone.

A champion itself cannot be compared with a challenger on runs that it was trained on. So both
recipes are fitted again, fold by fold, to the training runs of each without the held-out subjects,
and both predict the same held-out runs. Where that is not possible, because its runs are not all
on record, the champion predicts as it is, and both are judged on the subjects that it did not
learn from. The folds differ from the folds of the tuning, on which the challenger was selected and
would look better than it is. Subjects count the same, however many runs they have; a disturbed run
counts `NOISY_WEIGHT` of an undisturbed one.

A retrained challenger and a champion are judged on the newest runs, which neither learned from.
The runs after the champion's are halved by time: from the older half the challenger may
learn, on the newer one both are judged. It learns from all older runs, or, where the application
or the machines changed, from the new ones alone (Klinkenberg, Intelligent Data Analysis 8, 2004).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.laws.intervals import Interval, cautious_mean, clustered_mean
from voxcast.models.families.family import FAMILIES
from voxcast.models.metrics import under_requests
from voxcast.models.point_model import queries_of
from voxcast.models.selection import fitting

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from voxcast.models.families.family import Params
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.point_model import PointModel
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
        The recipe, see `voxcast.models.selection.fitting`.
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


def compare_recipes(
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
    return compare(errors[0], errors[1], validation.table)


def compare(
    challenger_errors: np.ndarray, champion_errors: np.ndarray, runs: pd.DataFrame
) -> Comparison | None:
    """Compare two models by their errors on the same runs, shape (n_runs, `JUDGED_TARGETS`).

    Runs for which one of them has no prediction (NaN) are left out for both; None if none is left.
    """
    errors = (challenger_errors, champion_errors)
    both = np.isfinite(errors[0]).all(axis=1) & np.isfinite(errors[1]).all(axis=1)
    if not both.any():
        return None
    table = runs[both]
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
    if contender.fitted is not None:
        trained_on = {*validation.table["subject"][contender.rows], *contender.seen}
        logs = _log_predictions_of_unseen(validation, contender.fitted, trained_on)
    else:
        logs = validation.no_predictions()
        for train, held_out in validation.folds():
            rows = train[contender.rows[train]]
            if not len(rows):
                continue
            model = fitting.fit(
                validation.part(rows), contender.family, contender.params, "volume"
            )
            outer = validation.part(held_out)
            logs[held_out] = model.predict(queries_of(outer.table, outer.volumes))
    return _errors(validation, logs)


def _errors(validation: Validation, logs: np.ndarray) -> np.ndarray:
    targets = [validation.targets.index(target) for target in JUDGED_TARGETS]
    errors: np.ndarray = np.abs(validation.actual() - logs)[:, targets]
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


# The interval of the promotion rule never excludes zero with fewer than six.
MIN_SUBJECTS = 10  # to judge on, and as many new ones to learn from
CHOICE_RECIPE = "ridge"  # by which a change is judged: fast, and fitted to few runs
NEGLIGIBLE = 0.01  # in a logarithmic error: 1 % less memory is never worth a request


@dataclass(frozen=True, eq=False)
class TimeSplit:
    """Runs by time; arrays of bool, shape (n_runs,).

    Attributes
    ----------
    new : ndarray
        Started after the last run of the champion, and not learned by it.
    newest : ndarray
        The newest of these, by subject.
    training : ndarray
        Older runs of other subjects, from which a challenger may learn.
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
        Otherwise they are not a reason to keep it.
    """

    comparison: Comparison
    champion_bound_holds: bool


def new_runs(table: pd.DataFrame, champion_keys: Collection[str]) -> np.ndarray:
    """Return which runs started after all that a champion learned from, shape (n_runs,)."""
    in_champion = table["cell_key"].isin(list(champion_keys)).to_numpy(dtype=bool)
    starts = table["started_at"].astype(str).to_numpy()
    last = max(starts[in_champion], default="")
    after: np.ndarray = np.asarray(~in_champion & (starts > last), dtype=bool)
    return after


def split_by_time(table: pd.DataFrame, champion_keys: Collection[str]) -> TimeSplit | None:
    """Split the runs of an application; None if too few subjects are new.

    The half of the new subjects whose last run is the newest is judged on.

    Parameters
    ----------
    table : DataFrame
        Training runs with ``cell_key``, ``started_at`` and ``subject``.
    """
    usable = np.ones(len(table), dtype=bool)
    return _halves(table, new_runs(table, champion_keys), usable, MIN_SUBJECTS)


def _halves(
    table: pd.DataFrame, new: np.ndarray, usable: np.ndarray, minimum: int
) -> TimeSplit | None:
    starts, subjects = (table[n].astype(str).to_numpy() for n in ("started_at", "subject"))
    last: dict[str, str] = {}
    for subject, start in zip(subjects[new].tolist(), starts[new].tolist(), strict=True):
        last[subject] = max(start, last.get(subject, ""))
    if len(last) < 2 * minimum:
        return None
    order = sorted(last, key=lambda subject: (last[subject], subject))
    is_newer = np.isin(subjects, order[len(order) - round(len(order) / 2) :])
    newest = new & is_newer
    since = str(min(starts[newest]))
    # A subject of the older part may have a run after that time: it is from the future.
    training = usable & ~is_newer & ~(new & (starts >= since))
    return TimeSplit(new, newest, training, since)


def is_changed(validation: Validation, split: TimeSplit) -> bool:
    """Whether a challenger is to learn from new runs alone: the application or machine changed.

    They must be shown to predict better than all runs, on the newer half of the new runs to learn
    from.
    """
    recent = split.new & split.training
    inner = _halves(validation.table, recent, split.training, MIN_SUBJECTS // 2)
    if inner is None or not (inner.training & recent).any():
        return False
    held_out, errors = np.flatnonzero(inner.newest), []
    for rows in (inner.training, inner.training & recent):
        part = validation.part(np.flatnonzero(rows))
        model = fitting.fit(part, CHOICE_RECIPE, FAMILIES[CHOICE_RECIPE].defaults, "volume")
        errors.append(model_errors(validation, held_out, model).mean(axis=1))
    subjects = validation.table["subject"].iloc[held_out].tolist()
    gain = clustered_mean(errors[0] - errors[1], subjects, confidence=0.98)
    return gain.bounded and gain.low > 0


def model_errors(validation: Validation, rows: np.ndarray, model: PointModel) -> np.ndarray:
    """Return absolute logarithmic errors, shape (n_rows, `JUDGED_TARGETS`)."""
    part = validation.part(rows)
    logs = model.predict(queries_of(part.table, part.volumes))
    return _errors(part, logs)


def judge(
    validation: Validation,
    rows: np.ndarray,
    challenger: PointModel,
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
    comparison = compare(
        model_errors(validation, rows, challenger),
        _errors(part, np.log(quantiles[:, :, 1])),
        part.table,
    )
    if comparison is None:
        return None
    notable = {
        name: gain
        for name, gain in comparison.gain_by_target.items()
        if abs(gain.value) >= NEGLIGIBLE
    }
    comparison = replace(comparison, gain_by_target=notable)
    subjects = part.table["subject"].tolist()
    actual = np.exp(part.actual())
    lowest = [
        under_requests(actual[:, k], quantiles[:, k, 2], subjects)[2][0]
        for k in range(len(validation.targets))
    ]
    return OutOfTime(comparison, max(lowest) < max_under_request)
