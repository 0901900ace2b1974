"""Study: coverage of bounds on subjects used neither for training, tuning nor calibration.

A model is trained on one batch and predicts another, measured for this study alone. Its bound is
compared with a rule that needs no model: the quantile of all runs of the application that is
exceeded as often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.records import TARGETS
from voxcast.studies import contenders
from voxcast.studies.recorded_table import FULL, of_app
from voxcast.studies.scoring import coverage, errors, scored_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


def study(
    table: pd.DataFrame,
    train_batch: str,
    test_batch: str,
    *,
    trials: int = contenders.TRIALS,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application, errors, coverage and sharpness on the test batch.

    Parameters
    ----------
    train_batch, test_batch : str
        Names of batches.
    """
    results: dict[str, Any] = {}
    train_runs, test_runs = (table[table["batch"] == name] for name in (train_batch, test_batch))
    for app in sorted(test_runs["app"].unique()):
        on_step(app)
        train, test = of_app(train_runs, app, FULL), of_app(test_runs, app, FULL)
        in_both = set(train["subject"]) & set(test["subject"])
        train = train[~train["subject"].isin(in_both)].reset_index(drop=True)
        predictions = contenders.voxcast_predictions(train, test, trials=trials)
        results[app] = {
            "errors": errors(predictions),
            "coverage": {target: coverage(predictions, target) for target in TARGETS},
            "sharpness": {target: sharpness(train, predictions, target) for target in TARGETS},
            "chosen": str(predictions["chosen"].iloc[0]),
        }
    return results


def sharpness(train: pd.DataFrame, predictions: pd.DataFrame, target: str) -> dict[str, float]:
    """Return requested over used, for the bound and for one request for all images.

    The one request is the smallest that is exceeded by no more runs than the bound was, so it is
    chosen with knowledge of the test runs.
    """
    runs = scored_runs(predictions, target)
    used = runs[target].to_numpy(dtype=float)
    requested = runs[f"{target}_upper"].to_numpy()
    exceeded = int((used > requested).sum())
    single_request = np.sort(used)[max(len(used) - 1 - exceeded, 0)]
    training_quantile = np.quantile(train[target].to_numpy(dtype=float), contenders.UPPER)
    return {
        "asked_over_used": float(requested.sum() / used.sum()),
        "one_request_asked_over_used": float(single_request * len(used) / used.sum()),
        "quantile_of_training_asked_over_used": float(training_quantile * len(used) / used.sum()),
        "saved": float(1 - requested.sum() / (single_request * len(used))),
    }
