"""Study: the cost of requests by image, replayed on held-out runs.

Each fold trains on the other subjects: the predictor, the law of its out-of-fold residuals, and
the law of the population. The held-out runs are then requested by every method of
`voxcast.allocation.requests.replay.planned_requests`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import requests_per_image
from voxcast.allocation.requests.replay import ReplayedRuns, account, planned_requests, replay
from voxcast.allocation.site import Waiting
from voxcast.evaluation.contenders import FAMILIES, INNER_FOLDS, TRIALS, UNCALIBRATED_FACTOR, UPPER
from voxcast.evaluation.protocols import split
from voxcast.evaluation.recorded_table import of_app
from voxcast.features.rows import FULL
from voxcast.laws.predicted import PredictedLaw
from voxcast.models.point_model import queries_of
from voxcast.models.selection.cross_validation import FoldCache, Validation
from voxcast.models.selection.fitting import fit_calibrated
from voxcast.models.selection.learning import learn
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WALL, MEMORY = TARGETS.index("runtime_s"), TARGETS.index("peak_rss_bytes")
MEDIAN = "median"  # gamma as the median runtime
COSTS: Mapping[str, tuple[float, float, float | str]] = {
    "reserved": (1.0, 0.0, 0.0),
    "turnaround": (0.95, 1.0, MEDIAN),
}
SITE_DEFAULT_S = 3600.0
MIN_SUBJECTS = 8  # so that inner folds have subjects on both sides
LOWER = 0.05


@dataclass(frozen=True, eq=False)
class HeldOutRuns:
    """The held-out runs of one fold, and their predictions.

    Attributes
    ----------
    train : DataFrame
        Training runs of the fold.
    residuals : PredictedLaw
        Law of measured over predicted wall time, from out-of-fold predictions.
    median_s, memory_bytes : ndarray, shape (n,)
        Predicted median of wall time, and upper bound of memory.
    """

    train: pd.DataFrame
    runs: pd.DataFrame
    residuals: PredictedLaw
    median_s: np.ndarray
    memory_bytes: np.ndarray


def study(
    table: pd.DataFrame,
    *,
    costs: Mapping[str, tuple[float, float, float | str]] = COSTS,
    site_default_s: float = SITE_DEFAULT_S,
    waiting: Waiting | None = None,
    folds: int = 5,
    seed: int = 0,
    trials: int = TRIALS,
    families: Sequence[str] = FAMILIES,
    cache: FoldCache | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application and cost model, the cost of every request method.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.recorded_table`.
    costs : mapping of str to (alpha, beta, gamma)
        Gamma may be ``"median"``, the median runtime of the training runs.

    Returns
    -------
    dict
        By application ``sd_log`` of the population, and by cost model ``ways`` (an
        `voxcast.allocation.requests.replay.Account` by method), ``implied``, the normalised cost
        that the predicted laws imply, ``over_implied``, the replayed cost over that, and
        ``excess_left``, the excess cost over the clairvoyant of ``per_image`` divided by that of
        ``population``. Or ``not_measurable`` with the reason.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        on_step(app)
        at_full = table[(table["app"] == app) & (table["scale"] == FULL)]
        subjects = at_full["subject"].nunique()
        if subjects < MIN_SUBJECTS:
            reason = f"{subjects} subjects at full scale, {MIN_SUBJECTS} are needed"
            results[app] = {"not_measurable": reason}
            continue
        runs = of_app(table, app, FULL)
        held_out = [
            _held_out_runs(
                runs.iloc[fold.train], runs.iloc[fold.test], families, trials, seed, cache
            )
            for fold in split(runs, "subject", folds=folds, seed=seed).folds
        ]
        results[app] = {
            "sd_log": float(np.log(runs["runtime_s"]).std()),
            **{
                name: _costs(held_out, cost, site_default_s, waiting or Waiting(), seed)
                for name, cost in costs.items()
            },
        }
    return results


def _held_out_runs(
    train: pd.DataFrame,
    test: pd.DataFrame,
    families: Sequence[str],
    trials: int,
    seed: int,
    cache: FoldCache | None,
) -> HeldOutRuns:
    runs = test[~test["noisy"]].reset_index(drop=True)
    validation = Validation(
        train.reset_index(drop=True), None, INNER_FOLDS, seed,
        cache=cache or FoldCache(),
    )  # fmt: skip
    leaderboard = learn(validation, families, trials=trials)
    model = fit_calibrated(validation, leaderboard, leaderboard.best, UNCALIBRATED_FACTOR)
    out_of_fold = leaderboard.out_of_fold[leaderboard.input_level][leaderboard.best]
    residuals = (validation.actual() - out_of_fold)[:, WALL]
    quantiles, _ = model.quantiles(queries_of(runs), LOWER, UPPER)
    return HeldOutRuns(
        validation.table,
        runs,
        PredictedLaw.of_residuals(residuals),
        quantiles[:, WALL, 1],
        quantiles[:, MEMORY, 2],
    )


def _costs(
    held_out: Sequence[HeldOutRuns],
    prices: tuple[float, float, float | str],
    site_default_s: float,
    waiting: Waiting,
    seed: int,
) -> dict[str, Any]:
    alpha, beta, gamma = prices
    replayed: dict[str, list[ReplayedRuns]] = {}
    requested_bytes: dict[str, list[np.ndarray]] = {}
    implied = omniscient = 0.0
    for fold in held_out:
        train = fold.train.sort_values("started_at")
        train_s = train["runtime_s"].to_numpy(dtype=float)
        price = float(np.median(train_s)) if isinstance(gamma, str) else gamma
        cost = CostModel(alpha, beta, price)
        runtime_s = fold.runs["runtime_s"].to_numpy(dtype=float)
        plans = planned_requests(
            train_s, fold.median_s, fold.residuals, runtime_s, cost,
            train_cpus=train["cpus"], cpus=fold.runs["cpus"],
            site_default_s=site_default_s,
        )  # fmt: skip
        largest = np.full(len(fold.runs), float(fold.train["peak_rss_bytes"].max()))
        peaks = fold.runs["peak_rss_bytes"].to_numpy(dtype=float)
        by_image = {"per_image": fold.memory_bytes, "clairvoyant": peaks}
        for method, plan in plans.items():
            replayed.setdefault(method, []).append(replay(plan, runtime_s, cost, waiting))
            requested_bytes.setdefault(method, []).append(by_image.get(method, largest))
        sequences = requests_per_image(fold.residuals, cost, fold.median_s)
        implied += float(sequences.expected_cost.sum())
        omniscient += float((sequences.expected_cost / sequences.normalised_cost).sum())
    runs = pd.concat([fold.runs for fold in held_out], ignore_index=True)
    accounts = {
        method: account(
            _concatenated(by_fold), runs["runtime_s"], runs["cpus"],
            np.concatenate(requested_bytes[method]), runs["peak_rss_bytes"],
            runs["subject"].tolist(), seed,
        )
        for method, by_fold in replayed.items()
    }  # fmt: skip
    per_image, population = (accounts[p].normalised_cost for p in ("per_image", "population"))
    return {
        "ways": {method: asdict(result) for method, result in accounts.items()},
        "implied": implied / omniscient,
        "over_implied": per_image / (implied / omniscient),
        "excess_left": (per_image - 1) / (population - 1),
    }


def _concatenated(by_fold: Sequence[ReplayedRuns]) -> ReplayedRuns:
    return ReplayedRuns(
        *(
            np.concatenate([getattr(runs, name) for runs in by_fold])
            for name in ("cost", "omniscient", "attempts", "busy_s", "turnaround_s")
        )
    )
