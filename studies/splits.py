"""Study: every holdout of `voxcast.evaluation.protocols`, for voxcast, HARP and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fold_predictions import (
    BASELINES,
    baseline_predictions,
    harp_custom_predictions,
    harp_predictions,
    pooled,
    voxcast_predictions,
)
from voxcast.evaluation.contenders import TRIALS
from voxcast.evaluation.protocols import HOLDOUTS, split
from voxcast.evaluation.recorded_table import of_app
from voxcast.evaluation.scoring import errors, requests
from voxcast.features.rows import FULL

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from voxcast.evaluation.harp import SelectionPolicy
    from voxcast.evaluation.protocols import Fold
    from voxcast.models.selection.cross_validation import FoldCache

EPOCHS = "parameter.epochs"
POLICIES: tuple[SelectionPolicy, ...] = ("WTM", "MAE")


def study(
    table: pd.DataFrame,
    *,
    folds: int = 5,
    seed: int = 0,
    trials: int = TRIALS,
    epochs_s: pd.Series | None = None,
    cache: FoldCache | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application and holdout, errors and requests of all contenders.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.recorded_table`.
    epochs_s : Series, optional
        Seconds in epochs by cell key, for HARP's custom estimator.
    cache : FoldCache, optional
        Cached predictions of inner folds, which studies of the same runs share.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        runs = of_app(table, app)
        results[app] = {}
        for holdout, meaning in HOLDOUTS.items():
            splits = split(runs, holdout, folds=folds, seed=seed)
            if splits.reason is not None:
                results[app][holdout] = {"not_measurable": splits.reason}
                continue
            on_step(f"{app}: {meaning}")
            by_contender: dict[str, list[pd.DataFrame]] = {}
            for fold in splits.folds:
                of_fold = _fold_predictions(runs, fold, holdout, trials, epochs_s, cache)
                for contender, predictions in of_fold.items():
                    by_contender.setdefault(contender, []).append(predictions)
            results[app][holdout] = _scores(
                {
                    contender: pooled(tables)
                    for contender, tables in by_contender.items()
                    if len(tables) == len(splits.folds)
                }
            )
    return results


def _fold_predictions(
    runs: pd.DataFrame,
    fold: Fold,
    holdout: str,
    trials: int,
    epochs_s: pd.Series | None,
    cache: FoldCache | None,
) -> dict[str, pd.DataFrame]:
    train, test = runs.iloc[fold.train], runs.iloc[fold.test]
    predictions = {"voxcast": voxcast_predictions(train, test, trials=trials, cache=cache)}
    baselines = BASELINES if "header.megavoxels" in runs else ("constant",)
    for baseline in baselines:
        predictions[baseline] = baseline_predictions(train, test, baseline)
    if holdout == "subject":
        # HARP also trains on the scaled-down runs of all subjects but those held out.
        held_out = set(test["subject"]) - set(train["subject"])
        scaled_down = (runs["scale"] != FULL) & ~runs["subject"].isin(held_out)
        both_scales = runs[scaled_down | runs.index.isin(train.index)]
        predictions |= _harp_predictions(both_scales, test, epochs_s)
    return predictions


def _harp_predictions(
    train: pd.DataFrame, test: pd.DataFrame, epochs_s: pd.Series | None
) -> dict[str, pd.DataFrame]:
    """Return the predictions of HARP's variants that can be fitted."""
    variants = {f"harp_{policy}": harp_predictions(train, test, policy) for policy in POLICIES}
    variants["harp_full_scale"] = harp_predictions(train, test, "MAE", scaled_down=False)
    if epochs_s is not None and EPOCHS in train:
        for policy in POLICIES:
            variants[f"harp_{policy}_custom"] = harp_custom_predictions(
                train, test, policy, epochs_s, EPOCHS
            )
    return {name: predictions for name, predictions in variants.items() if predictions is not None}


def _scores(by_contender: dict[str, pd.DataFrame]) -> dict[str, Any]:
    results = {}
    for contender, predictions in by_contender.items():
        scores: dict[str, Any] = {"errors": errors(predictions)}
        if "runtime_s_upper" in predictions:
            scores["request"] = requests(predictions)
        if "chosen" in predictions:
            scores["chosen"] = predictions["chosen"].value_counts().to_dict()
        results[contender] = scores
    return results
