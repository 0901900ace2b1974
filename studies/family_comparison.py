"""Study: are the families of models different at all? Paired comparisons on unseen subjects.

All families are tuned by folds within the training runs of each outer fold, and judged on the
same held-out subjects. Which one is best is itself read from these errors, so the intervals of
the differences hold for all pairs of families at once: each is at the level that Bonferroni's
inequality demands for that many pairs. They hold therefore for the pairs with the best one,
whichever it is.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any

from nested import CHOSEN, Learner
from voxcast.evaluation import out_of_sample
from voxcast.evaluation.holdouts import split
from voxcast.evaluation.recorded_table import FULL, of_app
from voxcast.evaluation.scoring import errors, paired

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from voxcast.models.selection.cross_validation import FoldCache

COMPARED = ("cpu_s", "peak_rss_bytes")
CONFIDENCE = 0.95  # of all pairs at once


def study(
    table: pd.DataFrame,
    families: Sequence[str],
    *,
    folds: int = 5,
    seed: int = 0,
    trials: int = out_of_sample.TRIALS,
    cache: FoldCache,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application and target, each family's error and its distance from the best.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.recorded_table`.
    families : sequence of str
        Names of tabular families.

    Returns
    -------
    dict
        By application and target of `COMPARED`: ``best``, ``pairs`` (their number), ``confidence``
        of each interval, and ``families``, by name the ``errors`` and the ``difference`` from the
        best, see `voxcast.evaluation.scoring.paired`. `CHOSEN` is what the inner folds choose; it
        is none of the pairs.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        runs = of_app(table, app, FULL)
        by_fold: dict[str, list[pd.DataFrame]] = {}
        learner = Learner(tuple(families), {}, trials, seed, cache)
        outer = split(runs, "subject", folds=folds, seed=seed).folds
        for number, fold in enumerate(outer, start=1):
            on_step(f"{app}: fold {number} of {len(outer)}")
            train, test = runs.iloc[fold.train], runs.iloc[fold.test]
            for name, predictions in learner.predictions(train, test, every_family=True).items():
                by_fold.setdefault(name, []).append(predictions)
        predictions_by_name = {
            name: out_of_sample.pooled(tables)
            for name, tables in by_fold.items()
            if len(tables) == len(outer)
        }
        results[app] = {target: _compared(predictions_by_name, target) for target in COMPARED}
    return results


def _compared(predictions: dict[str, pd.DataFrame], target: str) -> dict[str, Any]:
    scores = {name: errors(table)[target] for name, table in predictions.items()}
    names = [name for name in predictions if name != CHOSEN]
    best = min(names, key=lambda name: scores[name]["mape"])
    pairs = comb(len(names), 2)
    confidence = 1 - (1 - CONFIDENCE) / max(pairs, 1)
    differences = {
        name: paired(predictions[best], table, target, confidence)
        for name, table in predictions.items()
        if name != best
    }
    return {
        "best": best,
        "pairs": pairs,
        "confidence": confidence,
        "families": {
            name: {"errors": scores[name], "difference": differences.get(name)}
            for name in sorted(scores, key=lambda name: float(scores[name]["mape"]))
        },
    }
