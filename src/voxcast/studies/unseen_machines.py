"""Study: errors and bounds on a machine, or in a sitting, that was not measured before.

Each machine and each sitting on record is left out in turn; the machines of a reserved batch are
always left out. Models learn from the rest, and are judged on runs there of subjects that they
have not seen: at first without any run there, so that its speed is the prior, then after a few
local runs of other subjects, which only tell its speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.models.metrics import binomial_interval
from voxcast.models.query import queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.learning import learn
from voxcast.models.selection.refitting import fit_forecaster
from voxcast.records import TARGETS
from voxcast.studies import contenders
from voxcast.studies.holdouts import split
from voxcast.studies.recorded_table import FULL, of_app
from voxcast.studies.scoring import answer_counts, coverage, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from voxcast.models.forecaster import Forecaster
    from voxcast.studies.holdouts import Fold

COLUMNS = {"machine": "host_id", "sitting": "sitting"}
LOCAL_RUNS = (0, 2, 4, 8)
DRAWS = 10  # of the local runs; predictions of all draws are scored together
MIN_SUBJECTS = 8  # to learn from, once something is left out
FAMILIES = ("ridge", "additive", "gaussian_process")  # fast; the speed is none of their matters


def study(
    table: pd.DataFrame,
    elsewhere: pd.DataFrame | None = None,
    *,
    folds: int = 3,
    seed: int = 0,
    trials: int = contenders.TRIALS,
    draws: int = DRAWS,
    families: Sequence[str] = FAMILIES,
    cache: FoldCache | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application and kind of place, errors and coverage by number of local runs.

    Parameters
    ----------
    table : DataFrame
        Runs with ``host_id`` and ``sitting``; see
        `voxcast.studies.recorded_table.recorded_table`.
    elsewhere : DataFrame, optional
        Runs on other machines, of a batch that nothing learns from.

    Returns
    -------
    dict
        By application, kind (``machine``, ``sitting``) and place that is left out, a list of
        ``local_runs``, ``errors``, ``coverage`` and ``answers`` as in `voxcast.studies.scoring`.
        Or ``not_measurable`` with the reason, by kind or by place.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        runs = of_app(table, app, FULL)
        everywhere = runs if elsewhere is None else pd.concat([runs, of_app(elsewhere, app, FULL)])
        results[app] = {}
        for kind, column in COLUMNS.items():
            all_runs = everywhere if kind == "machine" else runs
            places = sorted(all_runs[column].astype(str).unique())
            if len(places) < 2:
                results[app][kind] = {"not_measurable": f"measured {_only(kind)}"}
                continue
            results[app][kind] = {}
            for place in places:
                on_step(f"{app}: {kind} {place}")
                results[app][kind][place] = _left_out(
                    all_runs[all_runs[column].astype(str) == place].reset_index(drop=True),
                    runs[runs[column].astype(str) != place].reset_index(drop=True),
                    kind, folds, seed, trials, draws, families, cache or FoldCache(),
                )  # fmt: skip
    return results


def _only(kind: str) -> str:
    return {"machine": "on one machine", "sitting": "in one sitting"}[kind]


def _left_out(
    local: pd.DataFrame,
    others: pd.DataFrame,
    kind: str,
    folds: int,
    seed: int,
    trials: int,
    draws: int,
    families: Sequence[str],
    cache: FoldCache,
) -> Any:
    subjects = others["subject"].nunique()
    if subjects < MIN_SUBJECTS:
        return {"not_measurable": f"{subjects} subjects elsewhere, {MIN_SUBJECTS} are needed"}
    if local["subject"].nunique() < 2:
        return {"not_measurable": "one subject in it, and local runs are of others"}
    by_count: dict[int, list[list[pd.DataFrame]]] = {count: [] for count in LOCAL_RUNS}
    for fold in split(local, "subject", folds=folds, seed=seed).folds:
        test = local.iloc[fold.test]
        train = others[~others["subject"].isin(set(test["subject"]))].reset_index(drop=True)
        validation = Validation(train, None, contenders.INNER_FOLDS, seed, cache=cache)
        leaderboard = learn(validation, families, trials=trials)
        forecaster = fit_forecaster(validation, leaderboard, leaderboard.best, contenders.FACTOR)
        # What is known of a machine was measured in other sittings than the one judged.
        asked_in = test if kind == "sitting" else test.drop(columns="sitting")
        for count in LOCAL_RUNS:
            by_count[count].append(
                [
                    _predictions(contenders.with_local_runs(forecaster, drawn), test, asked_in)
                    for drawn in _drawn(local, fold, count, draws, seed)
                ]
            )
    return [
        {"local_runs": count, **_scores(by_fold)}
        for count, by_fold in by_count.items()
        if all(by_fold)  # there are as many local runs
    ]


def _scores(by_fold: Sequence[Sequence[pd.DataFrame]]) -> dict[str, Any]:
    """Return the scores of predictions by fold and draw."""
    by_draw = [contenders.pooled(tables) for tables in zip(*by_fold, strict=True)]
    pooled = contenders.pooled(by_draw)
    return {
        "errors": errors(pooled),
        "coverage": {target: _coverage(by_draw, target) for target in TARGETS},
        "answers": answer_counts(pooled),
    }


def _coverage(by_draw: Sequence[pd.DataFrame], target: str) -> dict[str, Any]:
    """Return the number of subjects below the bound, as the mean over draws, with an interval."""
    counts = [coverage(predictions, target) for predictions in by_draw]
    covered = float(np.mean([count["covered"] for count in counts]))
    subjects = counts[0]["subjects"]
    return {
        "covered": covered,
        "subjects": subjects,
        "rate": covered / subjects,
        "interval": list(binomial_interval(round(covered), subjects)),
    }


def _drawn(
    local: pd.DataFrame, fold: Fold, count: int, draws: int, seed: int
) -> Iterator[pd.DataFrame]:
    """Yield random local runs of subjects that are not judged."""
    candidates = local.iloc[fold.train]
    if count == 0:
        yield candidates.head(0)
    elif count <= len(candidates):
        rng = np.random.default_rng(seed)
        for _ in range(draws):
            yield candidates.iloc[np.sort(rng.choice(len(candidates), count, replace=False))]


def _predictions(
    forecaster: Forecaster, test: pd.DataFrame, asked_in: pd.DataFrame
) -> pd.DataFrame:
    predictions = forecaster.predict(
        queries_of(asked_in),
        lower_quantile=1 - contenders.UPPER,
        upper_quantile=contenders.UPPER,
    )
    table = contenders.run_columns(test)
    for target in TARGETS:
        for k, name in ((1, "median"), (2, "upper")):
            table[f"{target}_{name}"] = [p.quantiles[target][k] for p in predictions]
    return table.assign(
        out_of_range=[bool(p.out_of_range) for p in predictions],
        calibrated=[p.calibrated for p in predictions],
    )
