"""The headline: errors and bounds of every contender, by application, target and protocol.

Intervals come from a two-way bootstrap: subjects and sittings are drawn with replacement,
independently, and a run counts as often as its subject and its sitting were drawn together
(Owen, Ann. Appl. Stat. 1:386, 2007). With the few sittings on record they are wide, as they
should be: the next scan of a user comes in another sitting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.evaluation.contenders import (
    Contender,
    VoxcastContender,
    contenders,
    recipe_contender,
)
from voxcast.evaluation.protocols import PROTOCOLS, Fold, Place, Protocol, days_of, draws, folds
from voxcast.evaluation.scoring import floor_percent
from voxcast.features.rows import FULL, KERNEL_S
from voxcast.models.selection import fitting
from voxcast.models.selection.cross_validation import FoldCache
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from voxcast.models.families.family import Params
    from voxcast.models.selection.cross_validation import Validation

FAMILIES = ("ridge", "boosted", "gaussian_process", "phases")  # that voxcast tunes and blends
TUNED = {"ridge": ("ridge",), "GP": ("gaussian_process",)}  # each alone
DRAWS, RESAMPLES, LEVEL = 20, 2000, 0.95
FEW = 2  # local runs, which any user can make
DAY_FOLDS, DAY_DRAWS = 3, 5
MINIMUM_SUBJECTS = 4  # to learn from
CELL = ("volume_id", "parameters_json", "cpus", "device")


def headline(
    table: pd.DataFrame,
    elsewhere: pd.DataFrame | None = None,
    *,
    families: Sequence[str] = FAMILIES,
    n_folds: int = 3,
    n_draws: int = DRAWS,
    seed: int = 0,
    cache: FoldCache | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> pd.DataFrame:
    """Return a row for each target, protocol and contender.

    Parameters
    ----------
    table : DataFrame
        Runs of one application at all scales; see `voxcast.evaluation.recorded_table`. Those at
        full scale are judged.
    elsewhere : DataFrame, optional
        Runs on another machine, from which nothing is learned.

    Returns
    -------
    DataFrame
        ``app target protocol local_runs contender``; ``mape low high``, the mean absolute error
        in percent with its interval; ``runs subjects sittings days``, that were judged; ``floor``,
        the error that repeats leave; and where a contender has bounds, ``above_bound``, the runs
        above the bound, ``coverage``, the share of runs below it, ``subjects_covered``, the share
        of subjects with all their runs below it, and ``width``, the median ratio of bound to
        median.
    """
    reserved = table.head(0) if elsewhere is None else elsewhere
    everywhere = pd.concat([table.assign(reserved=False), reserved.assign(reserved=True)])
    full = (everywhere["scale"] == FULL).to_numpy()
    runs = _with_places(everywhere[full])
    scaled_down = everywhere[~full & ~everywhere["reserved"].to_numpy()]
    predictions = [
        part
        for place in dict.fromkeys(protocol.place for protocol in PROTOCOLS)
        for part in _predictions(
            runs, scaled_down, place, families, n_folds, n_draws, seed,
            cache or FoldCache(), on_step,
        )
    ]  # fmt: skip
    answers = pd.concat(predictions, ignore_index=True)
    rows = []
    for protocol in PROTOCOLS:
        of_protocol = answers[answers["protocol"] == protocol.name]
        for contender, part in of_protocol.groupby("contender", sort=True):
            scored = [protocol_scores(runs, part, target, protocol, seed) for target in TARGETS]
            name = {"contender": contender, "local_runs": protocol.local_runs}
            rows += [row | name for row in scored]
    columns = ["app", "target", "protocol", "local_runs", "contender"]
    result = pd.DataFrame(rows).assign(app=str(runs["app"].iloc[0]))
    return result[[*columns, *(name for name in result if name not in columns)]]


def new_day_errors(
    validation: Validation,
    name: str,
    params: Params,
) -> pd.DataFrame:
    """Return how far the medians of a recipe lie off on days that were not measured.

    It is fitted again without the judged subjects and days.

    Parameters
    ----------
    validation : Validation
        Runs of one application.
    name, params : str, dict
        See `voxcast.models.selection.fitting`.

    Returns
    -------
    DataFrame
        Rows of `headline` without bounds, for protocols on a new day; empty where the runs are of
        too few days or subjects.
    """
    runs = _with_places(validation.table.assign(reserved=False))
    volumes: dict[str, np.ndarray] = {}
    if validation.volumes is not None:
        volumes = dict(zip(runs["volume_id"], validation.volumes, strict=True))
    protocols = [p for p in PROTOCOLS if p.place == "new sitting" and p.local_runs <= FEW]
    answers = []
    for fold in folds(runs, "new sitting", n_folds=DAY_FOLDS, seed=0):
        if runs["subject"].iloc[fold.train].nunique() < MINIMUM_SUBJECTS:
            return pd.DataFrame()
        training = validation.part(fold.train)
        model = fitting.fit(training, name, params, "volume")
        contender = recipe_contender(model, training.table, volumes)
        for protocol in protocols:
            answers += _answers(runs, fold, protocol, name, contender, DAY_DRAWS, 0)
    if not answers:
        return pd.DataFrame()
    together = pd.concat(answers, ignore_index=True)
    rows = []
    for protocol in protocols:
        part = together[together["protocol"] == protocol.name]
        if len(part):
            scored = [protocol_scores(runs, part, target, protocol, 0) for target in TARGETS]
            rows += [{"local_runs": protocol.local_runs, **row} for row in scored]
    return pd.DataFrame(rows)


def _with_places(runs: pd.DataFrame) -> pd.DataFrame:
    """Add the day and the cell of each run."""
    days = days_of(runs)
    # Where parameters are unknown, no run is known to repeat another one.
    columns = list(CELL) if set(CELL) <= set(runs) else ["cell_key"]
    cells = runs[columns].astype(str).agg("|".join, axis=1)
    return runs.assign(day=days, cell=cells).reset_index(drop=True)


def _predictions(
    runs: pd.DataFrame,
    scaled_down: pd.DataFrame,
    place: Place,
    families: Sequence[str],
    n_folds: int,
    n_draws: int,
    seed: int,
    cache: FoldCache,
    on_step: Callable[[str], None],
) -> list[pd.DataFrame]:
    parts = []
    protocols = [protocol for protocol in PROTOCOLS if protocol.place == place]
    for fold in folds(runs, place, n_folds=n_folds, seed=seed):
        train = runs.iloc[fold.train].reset_index(drop=True)
        test = runs.iloc[fold.test]
        smaller = scaled_down[~scaled_down["subject"].isin(test["subject"])]
        if place == "new sitting":
            smaller = smaller[~days_of(smaller).isin(test["day"])]
        on_step(f"{place}: {len(fold.test)} runs, {len(train)} to learn from")
        fitted: dict[str, Contender | VoxcastContender] = {
            **{
                name: VoxcastContender(train, of, seed, cache)
                for name, of in {"voxcast": families, **TUNED}.items()
            },
            **contenders(train, smaller, seed),
        }
        for protocol in protocols:
            for name, contender in fitted.items():
                parts += _answers(runs, fold, protocol, name, contender, n_draws, seed)
    return parts


def _answers(
    runs: pd.DataFrame,
    fold: Fold,
    protocol: Protocol,
    name: str,
    contender: Contender | VoxcastContender,
    n_draws: int,
    seed: int,
) -> list[pd.DataFrame]:
    test = fold.test
    if protocol.reading:
        timed = runs.reindex(columns=[KERNEL_S])[KERNEL_S].notna().to_numpy()
        test = test[timed[test]]
    if protocol.reading != "known":
        runs = runs.drop(columns=KERNEL_S, errors="ignore")
    if not len(test):
        return []
    return [
        contender.predict(runs.iloc[test], runs.iloc[local]).assign(
            run=test, draw=draw, protocol=protocol.name, contender=name
        )
        for draw, local in enumerate(draws(fold, protocol.local_runs, n_draws, seed))
    ]


def protocol_scores(
    runs: pd.DataFrame, answers: pd.DataFrame, target: str, protocol: Protocol, seed: int
) -> dict[str, Any]:
    """Return the scores of one contender; disturbed runs do not count for wall time."""
    measured = runs[target].to_numpy(dtype=float)[answers["run"]]
    median, upper = (
        answers[f"{target}_{name}"].to_numpy(dtype=float)
        if f"{target}_{name}" in answers
        else np.full(len(answers), np.nan)
        for name in ("median", "upper")
    )
    by_answer = pd.DataFrame(
        {
            "run": answers["run"],
            "draw": answers["draw"],
            "error": 100 * np.abs(median / measured - 1),
            "above": np.where(np.isnan(upper), np.nan, measured > upper),
            "width": upper / median,
        }
    )
    if target == "runtime_s":
        by_answer = by_answer[~runs["noisy"].to_numpy(dtype=bool)[by_answer["run"]]]
    by_run = by_answer.drop(columns="draw").groupby("run").mean()
    scored = runs.loc[by_run.index]
    low, high = two_way_interval(by_run["error"], scored["subject"], scored["sitting"], seed)
    above = by_run["above"]
    # A subject is above if one of its runs is, in each draw of local runs by itself.
    subjects = runs["subject"].to_numpy()[by_answer["run"]]
    by_subject = by_answer["above"].groupby([subjects, by_answer["draw"]]).max()
    by_subject = by_subject.groupby(level=0).mean()
    return {
        "target": target,
        "protocol": protocol.name,
        "mape": by_run["error"].mean(),
        "low": low,
        "high": high,
        "runs": len(by_run),
        "subjects": scored["subject"].nunique(),
        "sittings": scored["sitting"].nunique(),
        "days": scored["day"].nunique(),
        "above_bound": above.sum(min_count=1),
        "coverage": 1 - above.mean(),
        "subjects_covered": 1 - by_subject.mean(),
        "width": by_run["width"].median(),
        "floor": floor_percent(scored, target, protocol),
    }


def two_way_interval(
    values: pd.Series, subjects: pd.Series, sittings: pd.Series, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of a mean, by a bootstrap of subjects and of sittings."""
    rng = np.random.default_rng(seed)
    weights = np.ones((RESAMPLES, len(values)))
    for groups in (subjects, sittings):
        codes, names = pd.factorize(groups.astype(str))
        counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
        weights *= counts[:, codes]
    totals = weights.sum(axis=1)
    drawn = totals > 0  # few sittings may leave nothing of the drawn subjects
    means = (weights @ values.to_numpy())[drawn] / totals[drawn]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
