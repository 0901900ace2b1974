"""Study: coverage of bounds on subjects used neither for training, tuning nor calibration.

A model is trained on the other batches and predicts one that was measured for judging alone. Its
bound is compared with a rule that needs no model: the quantile of all runs of the application that
is exceeded as often.

A few runs of other subjects, measured on the same machine shortly before, tell the speed of the
machine in the sitting that is judged, as anchor runs of a user would. Their subjects are left out
of the training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fold_predictions import voxcast_predictions
from voxcast.evaluation.contenders import TRIALS
from voxcast.evaluation.recorded_table import of_app
from voxcast.evaluation.scoring import coverage, errors, scored_runs
from voxcast.features.rows import FULL
from voxcast.models.speeds import SITTING_LASTS
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxcast.models.selection.cross_validation import FoldCache


LOCAL_RUNS = 8


def study(
    train_runs: pd.DataFrame,
    test_runs: pd.DataFrame,
    *,
    trials: int = TRIALS,
    cache: FoldCache | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application, errors, coverage and sharpness on the test runs.

    Parameters
    ----------
    train_runs : DataFrame
        Runs to learn from. Subjects that are judged on are left out.
    test_runs : DataFrame
        Runs of a batch that is reserved for judging.
    """
    results: dict[str, Any] = {}
    for app in sorted(test_runs["app"].unique()):
        on_step(app)
        train, test = of_app(train_runs, app, FULL), of_app(test_runs, app, FULL)
        train = train[~train["subject"].isin(set(test["subject"]))]
        local = local_runs(train, test)
        train = train[~train["subject"].isin(set(local["subject"]))].reset_index(drop=True)
        predictions = voxcast_predictions(train, test, trials=trials, local=local, cache=cache)
        results[app] = {
            "local_runs": len(local),
            "learned_from": {"subjects": train["subject"].nunique(), "runs": len(train)},
            "errors": errors(predictions),
            "coverage": {target: coverage(predictions, target) for target in TARGETS},
            "sharpness": {target: sharpness(predictions, target) for target in TARGETS},
            "answers": answer_counts(predictions),
            "chosen": str(predictions["chosen"].iloc[0]),
        }
    return results


def answer_counts(predictions: pd.DataFrame) -> dict[str, int]:
    """Return how many answers there are, and how many are out of range and calibrated."""
    return {
        "runs": len(predictions),
        "out_of_range": int(predictions["out_of_range"].sum()),
        "calibrated": int(predictions["calibrated"].sum()),
    }


def local_runs(candidates: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Return the last runs before each sitting of ``test``, at most `LOCAL_RUNS` of each.

    They are of one CPU, of different subjects, and on the same machine, no longer ago than a
    sitting lasts after its last run. Their ``sitting`` is replaced by the one of ``test``: they
    were made for other campaigns, which number their own sittings.
    """
    chosen = [candidates.head(0)]
    for (host, sitting), runs in test.groupby(["host_id", "sitting"], sort=True):
        ago = _times(runs).min() - _times(candidates)
        near = (
            (candidates["host_id"] == host)
            & (candidates["cpus"] == 1)
            & ~candidates["subject"].isin({s for table in chosen for s in table["subject"]})
            & (ago > pd.Timedelta(0))
            & (ago <= SITTING_LASTS)
        )
        latest_first = candidates.loc[ago[near].sort_values(kind="stable").index]
        latest = latest_first.drop_duplicates("subject").head(LOCAL_RUNS)
        chosen.append(latest.assign(sitting=sitting))
    return pd.concat(chosen)


def _times(runs: pd.DataFrame) -> pd.Series:
    return pd.to_datetime(runs["started_at"], format="ISO8601", utc=True, errors="coerce")


def sharpness(predictions: pd.DataFrame, target: str) -> dict[str, float]:
    """Return requested over used, for the bound and for one request for all images.

    The one request is the smallest that is exceeded by no more runs than the bound was, so it is
    chosen with knowledge of the test runs.
    """
    runs = scored_runs(predictions, target)
    used = runs[target].to_numpy(dtype=float)
    requested = runs[f"{target}_upper"].to_numpy()
    exceeded = int((used > requested).sum())
    single_request = np.sort(used)[max(len(used) - 1 - exceeded, 0)]
    return {
        "asked_over_used": float(requested.sum() / used.sum()),
        "one_request_asked_over_used": float(single_request * len(used) / used.sum()),
    }
