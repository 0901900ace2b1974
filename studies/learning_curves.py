"""Study: how the error on unseen subjects falls with the number of subjects measured.

The curve is set beside two floors, which no model of the image can pass: what repeats of one run
differ by, as measured and at the usual speed of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nested import CHOSEN, Learner
from voxcast.evaluation import out_of_sample
from voxcast.evaluation.holdouts import split
from voxcast.evaluation.recorded_table import FULL, of_app
from voxcast.evaluation.scoring import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from voxcast.models.selection.cross_validation import FoldCache

COUNTS = (8, 16, 32, 64, 128)
# Families that win on few subjects, and are fast.
FAMILIES = ("ridge", "boosted", "gaussian_process")


def study(
    table: pd.DataFrame,
    floors: Mapping[str, Mapping[str, Mapping[str, float]]],
    *,
    counts: Sequence[int] = COUNTS,
    families: Sequence[str] = FAMILIES,
    folds: int = 5,
    seed: int = 0,
    trials: int = out_of_sample.TRIALS,
    cache: FoldCache,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return the learning curve of each application.

    In each outer fold the same held-out subjects are predicted after every number of training
    subjects. Smaller sets are parts of larger ones, drawn at random.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.recorded_table`.
    floors : mapping
        By application ``raw`` and ``normalised``: the error in percent, by target, of a model
        that knows the mean of the repeats.
    counts : sequence of int
        Numbers of subjects; all subjects of a fold are added.

    Returns
    -------
    dict
        By application ``floors``, and ``points``: ``subjects`` (the mean over folds), ``runs``
        and ``errors``, see `voxcast.evaluation.scoring.errors`.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        runs = of_app(table, app, FULL)
        learner = Learner(tuple(families), {}, trials, seed, cache)
        outer = split(runs, "subject", folds=folds, seed=seed).folds
        fewest = min(runs.iloc[fold.train]["subject"].nunique() for fold in outer)
        points = []
        for count in (*(n for n in counts if n < fewest), None):
            on_step(f"{app}: {'all' if count is None else count} subjects")
            predictions, sizes = [], []
            for number, fold in enumerate(outer):
                train = _first_subjects(runs.iloc[fold.train], count, seed + number)
                test = runs.iloc[fold.test]
                predictions.append(learner.predictions(train, test)[CHOSEN])
                sizes.append((train["subject"].nunique(), len(train)))
            subjects, n_runs = np.mean(sizes, axis=0).tolist()
            scores = errors(out_of_sample.pooled(predictions))
            points.append({"subjects": subjects, "runs": n_runs, "errors": scores})
        results[app] = {"floors": floors.get(app, {}), "points": points}
    return results


def _first_subjects(train: pd.DataFrame, count: int | None, seed: int) -> pd.DataFrame:
    """Return the runs of the first ``count`` subjects in a random order; None stands for all."""
    if count is None:
        return train
    order = np.random.default_rng(seed).permutation(np.unique(train["subject"].astype(str)))
    return train[train["subject"].isin(order[:count])]
