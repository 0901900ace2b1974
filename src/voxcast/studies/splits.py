"""Study: each question of `voxcast.studies.holdouts`, by voxcast, HARP and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.studies import contenders as ask
from voxcast.studies.holdouts import QUESTIONS, split
from voxcast.studies.judgement import at_no_more_risk, errors, requests
from voxcast.studies.recorded_table import FULL, of_app

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from voxcast.studies.holdouts import Fold

EPOCHS = "parameter.epochs"


def study(
    table: pd.DataFrame,
    *,
    folds: int = 5,
    seed: int = 0,
    trials: int = ask.TRIALS,
    epochs_s: pd.Series | None = None,
    on_step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Return, by application and question, errors and requests of everybody.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.studies.recorded_table.recorded_table`.
    epochs_s : Series, optional
        Seconds in epochs by cell key, for HARP's custom estimator.
    """
    found: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        own = of_app(table, app)
        found[app] = {}
        for question, meaning in QUESTIONS.items():
            parts = split(own, question, folds=folds, seed=seed)
            if parts.why_not is not None:
                found[app][question] = {"not_measurable": parts.why_not}
                continue
            on_step(f"{app}: {meaning}")
            said: dict[str, list[pd.DataFrame]] = {}
            for fold in parts.folds:
                for who, one in _everybody(own, fold, question, trials, epochs_s).items():
                    said.setdefault(who, []).append(one)
            everybody = {
                who: ask.pooled(answers)
                for who, answers in said.items()
                if len(answers) == len(parts.folds)
            }
            found[app][question] = {who: _judge(own) for who, own in everybody.items()}
            for who, judged in found[app][question].items():
                if who.startswith("harp"):
                    judged["voxcast_at_no_more_risk"] = at_no_more_risk(
                        everybody["voxcast"], ask.LEVELS, judged["request"]["upp"]
                    )
    return found


def _everybody(
    own: pd.DataFrame, fold: Fold, question: str, trials: int, epochs_s: pd.Series | None
) -> dict[str, pd.DataFrame]:
    train, test = own.iloc[fold.train], own.iloc[fold.test]
    said = {"voxcast": ask.voxcast_answers(train, test, trials=trials)}
    rivals = ask.RIVALS if "header.megavoxels" in own else ("constant",)
    said |= {rival: ask.rival_answers(train, test, rival) for rival in rivals}
    if question == "subject":
        # HARP learns from scaled-down runs, too, of the same subjects.
        subjects = set(train["subject"])
        known = (own["scale"] != FULL) & ~own["subject"].isin(set(test["subject"]) - subjects)
        both = own[known | own.index.isin(train.index)]
        for policy in ("WTM", "MAE"):
            harp = ask.harp_answers(both, test, policy)
            if harp is not None:
                said[f"harp_{policy}"] = harp
            if epochs_s is not None and EPOCHS in own:
                custom = ask.harp_custom_answers(both, test, policy, epochs_s, EPOCHS)
                if custom is not None:
                    said[f"harp_{policy}_custom"] = custom
    return said


def _judge(answers: pd.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = {"errors": errors(answers)}
    if "runtime_s_upper" in answers:
        found["request"] = requests(answers)
    if "chosen" in answers:
        found["chosen"] = answers["chosen"].value_counts().to_dict()
    return found
