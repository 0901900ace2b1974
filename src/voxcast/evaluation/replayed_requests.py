"""Study: the cost of requests by image, replayed on held-out runs.

The question is a user's: a new subject on a new day, on which two local runs of other subjects
show how fast the machine is. Where runs are of one day alone, the subject alone is new. The
predictor and the law of the population are of the other subjects and days. The held-out runs are
then requested by every method of `voxcast.allocation.requests.replay.planned_requests`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import (
    QUANTILES,
    RequestsPerImage,
    knots_of,
    requests_per_image,
)
from voxcast.allocation.requests.replay import ReplayedRuns, account, planned_requests, replay
from voxcast.allocation.site import Waiting
from voxcast.evaluation import protocols
from voxcast.evaluation.contenders import FAMILIES, TRIALS, UPPER, VoxcastContender
from voxcast.evaluation.protocols import Place, days_of, draws
from voxcast.evaluation.recorded_table import of_app
from voxcast.features.rows import FULL, KERNEL_S
from voxcast.laws.predicted import PredictedLaw
from voxcast.models.point_model import queries_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.models.selection.cross_validation import FoldCache

MEDIAN = "median"  # gamma as the median runtime
COSTS: Mapping[str, tuple[float, float, float | str]] = {
    "reserved": (1.0, 0.0, 0.0),
    "turnaround": (0.95, 1.0, MEDIAN),
}
SITE_DEFAULT_S = 3600.0
MIN_SUBJECTS = 8  # so that inner folds have subjects on both sides
LOCAL_RUNS = 2


@dataclass(frozen=True, eq=False)
class HeldOutRuns:
    """The held-out runs of one fold, and their predictions.

    Attributes
    ----------
    train : DataFrame
        Training runs of the fold.
    laws : list of PredictedLaw, length n
        Predicted law of the wall time of each run.
    memory_bytes : ndarray, shape (n,)
        Upper bound of memory.
    """

    train: pd.DataFrame
    runs: pd.DataFrame
    laws: list[PredictedLaw]
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
        By application ``place`` (``new sitting`` or ``known sitting``), ``sd_log`` of the
        population, and by cost model ``ways`` (an
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
        runs = runs.assign(day=days_of(runs), reserved=False).reset_index(drop=True)
        place: Place = "known sitting"
        if "sitting" not in runs:  # of an import
            runs["sitting"] = ""
        elif runs["day"].nunique() > 1:
            place = "new sitting"
        held_out = []
        for fold in protocols.folds(runs, place, n_folds=folds, seed=seed):
            test = runs.iloc[fold.test]
            local = draws(fold, LOCAL_RUNS if place == "new sitting" else 0, 1, seed)
            if not local or test["noisy"].all():
                continue
            contender = VoxcastContender(
                runs.iloc[fold.train], families, seed, cache, trials=trials
            )
            held_out.append(
                _held_out_runs(contender, runs.iloc[fold.train], test, runs.iloc[local[0]])
            )
        results[app] = {
            "place": place,
            "sd_log": float(np.log(runs["runtime_s"]).std()),
            **{
                name: _costs(held_out, cost, site_default_s, waiting or Waiting(), seed)
                for name, cost in costs.items()
            },
        }
    return results


def _held_out_runs(
    contender: VoxcastContender, train: pd.DataFrame, test: pd.DataFrame, local: pd.DataFrame
) -> HeldOutRuns:
    runs = test[~test["noisy"].astype(bool)].reset_index(drop=True)
    forecaster = contender.at_speed_of(local)
    queries = queries_of(runs, with_readings=KERNEL_S in runs)
    by_quantile = {
        q: forecaster.predict(queries, lower_quantile=1 - q, upper_quantile=q) for q in QUANTILES
    }
    laws = []
    for n in range(len(runs)):
        rows = {}
        for q, answers in by_quantile.items():
            lower, median, upper = answers[n].quantiles["runtime_s"]
            rows[q] = {"runtime_s_lower": lower, "runtime_s_median": median,
                       "runtime_s_upper": upper, "calibrated": answers[n].calibrated}  # fmt: skip
        laws.append(PredictedLaw.of(*zip(*knots_of(rows), strict=True)))
    memory_bytes = [answer.quantiles["peak_rss_bytes"][2] for answer in by_quantile[UPPER]]
    return HeldOutRuns(train, runs, laws, np.array(memory_bytes))


def _sequences(laws: Sequence[PredictedLaw], cost: CostModel) -> RequestsPerImage:
    """Return the optimal sequence for each law."""
    by_run = [requests_per_image(law, cost, [1.0]) for law in laws]
    longest = max(sequences.requests.shape[1] for sequences in by_run)
    padded = np.full((len(laws), longest), np.nan)
    for row, sequences in zip(padded, by_run, strict=True):
        row[: sequences.requests.shape[1]] = sequences.requests[0]
    expected, normalised = (
        np.concatenate([getattr(sequences, name) for sequences in by_run])
        for name in ("expected_cost", "normalised_cost")
    )
    return RequestsPerImage(padded, expected, normalised)


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
        sequences = _sequences(fold.laws, cost)
        median_s = [float(law.quantile(0.5)) for law in fold.laws]
        plans = planned_requests(
            train_s, median_s, sequences.requests, runtime_s, cost,
            train_cpus=train["cpus"], cpus=fold.runs["cpus"],
            site_default_s=site_default_s,
        )  # fmt: skip
        largest = np.full(len(fold.runs), float(fold.train["peak_rss_bytes"].max()))
        peaks = fold.runs["peak_rss_bytes"].to_numpy(dtype=float)
        by_image = {"per_image": fold.memory_bytes, "clairvoyant": peaks}
        for method, plan in plans.items():
            replayed.setdefault(method, []).append(replay(plan, runtime_s, cost, waiting))
            requested_bytes.setdefault(method, []).append(by_image.get(method, largest))
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
