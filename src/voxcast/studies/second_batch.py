"""Study: do bounds hold on subjects that neither trained, tuned nor calibrated?

A model learned from one batch is asked about another, measured for this alone. Beside its
bound stands a rule without a model: the quantile of all runs of the application that is exceeded
as often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.records import TARGETS
from voxcast.studies import contenders as ask
from voxcast.studies.judgement import coverage, errors, judged_on
from voxcast.studies.recorded_table import FULL, of_app

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


def study(
    table: pd.DataFrame,
    learned_from: str,
    asked_about: str,
    *,
    trials: int = ask.TRIALS,
    on_step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Return, by application, errors, coverage and sharpness on the batch asked about.

    Parameters
    ----------
    learned_from, asked_about : str
        Names of batches.
    """
    found: dict[str, Any] = {}
    whole, other = (table[table["batch"] == name] for name in (learned_from, asked_about))
    for app in sorted(other["app"].unique()):
        on_step(app)
        train, test = of_app(whole, app, FULL), of_app(other, app, FULL)
        known = set(train["subject"]) & set(test["subject"])
        train = train[~train["subject"].isin(known)].reset_index(drop=True)
        answers = ask.voxcast_answers(train, test, trials=trials)
        found[app] = {
            "errors": errors(answers),
            "coverage": {target: coverage(answers, target) for target in TARGETS},
            "sharpness": {target: sharpness(train, answers, target) for target in TARGETS},
            "chosen": str(answers["chosen"].iloc[0]),
        }
    return found


def sharpness(train: pd.DataFrame, answers: pd.DataFrame, target: str) -> dict[str, float]:
    """Return what is asked for each unit used, by the bound and by one request for all images.

    The one request is the smallest that is exceeded by no more runs than the bound was: it is
    granted what it could not know.
    """
    judged = judged_on(answers, target)
    actual = judged[target].to_numpy(dtype=float)
    asked = judged[f"{target}_upper"].to_numpy()
    exceeded = int((actual > asked).sum())
    enough = np.sort(actual)[max(len(actual) - 1 - exceeded, 0)]
    level = np.quantile(train[target].to_numpy(dtype=float), ask.UPPER)
    return {
        "asked_over_used": float(asked.sum() / actual.sum()),
        "one_request_asked_over_used": float(enough * len(actual) / actual.sum()),
        "quantile_of_training_asked_over_used": float(level * len(actual) / actual.sum()),
        "saved": float(1 - asked.sum() / (enough * len(actual))),
    }
