"""Study: what requests by image cost, replayed on runs that nobody had seen.

Each fold learns from the other subjects: the predictor, the law of its errors on subjects that it
had not seen in turn, and the law of the population. The runs held out are then asked for by every
way of `voxcast.allocation.requests.replay.plans`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.allocation.requests.bulk import many_requests
from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.replay import Replayed, account, plans, replay
from voxcast.allocation.waiting import Waiting
from voxcast.features.table import rows_of
from voxcast.laws.predicted import PredictedLaw
from voxcast.models.forecaster import scaled_residuals
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.learning import calibrated, fit_one, learn
from voxcast.records import TARGETS
from voxcast.studies import contenders as ask
from voxcast.studies.holdouts import split
from voxcast.studies.recorded_table import FULL, of_app

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WALL, MEMORY = TARGETS.index("runtime_s"), TARGETS.index("peak_rss_bytes")
MEDIAN = "median"  # gamma as the median runtime
COSTS: Mapping[str, tuple[float, float, float | str]] = {
    "reserved": (1.0, 0.0, 0.0),
    "turnaround": (0.95, 1.0, MEDIAN),
}
SITE_DEFAULT_S = 3600.0
FEWEST = 8  # subjects, so that folds within a fold have some on either side
LOWER, UPPER = 0.05, 0.95


@dataclass(frozen=True, eq=False)
class Asked:
    """Runs held out in one fold, and what is known of them beforehand.

    Attributes
    ----------
    residuals : PredictedLaw
        Of measured over predicted walltime, on subjects not seen in turn.
    median_s, down, up, memory_bytes : ndarray, shape (n,)
        Predicted median and spread of walltime, and upper bound of memory.
    """

    seen: pd.DataFrame
    runs: pd.DataFrame
    residuals: PredictedLaw
    median_s: np.ndarray
    down: np.ndarray
    up: np.ndarray
    memory_bytes: np.ndarray


def study(
    table: pd.DataFrame,
    *,
    costs: Mapping[str, tuple[float, float, float | str]] = COSTS,
    site_default_s: float = SITE_DEFAULT_S,
    waiting: Waiting | None = None,
    folds: int = 5,
    seed: int = 0,
    trials: int = ask.TRIALS,
    families: Sequence[str] = ask.FAMILIES,
    on_step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Return, by application and cost model, what every way of asking cost.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.studies.recorded_table.recorded_table`.
    costs : mapping of str to (alpha, beta, gamma)
        Gamma may be ``"median"``, the median runtime of what was seen.

    Returns
    -------
    dict
        By application ``sd_log`` of the population, and by cost model ``ways`` (an
        `voxcast.allocation.requests.replay.Account` each), ``implied``, the normalised cost that
        the exact programme gives for the laws themselves, ``over_implied``, replayed over that,
        and ``excess_left``, the excess over the clairvoyant by image over the population's. Or
        ``not_measurable`` with the reason.
    """
    found: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        on_step(app)
        at_full = table[(table["app"] == app) & (table["scale"] == FULL)]
        subjects = at_full["subject"].nunique()
        if subjects < FEWEST:
            why = f"{subjects} subjects at full scale, {FEWEST} are needed"
            found[app] = {"not_measurable": why}
            continue
        own = of_app(table, app, FULL)
        asked = [
            _asked(own.iloc[fold.train], own.iloc[fold.test], families, trials, seed)
            for fold in split(own, "subject", folds=folds, seed=seed).folds
        ]
        found[app] = {
            "sd_log": float(np.log(own["runtime_s"]).std()),
            **{
                name: _costs(asked, cost, site_default_s, waiting or Waiting(), seed)
                for name, cost in costs.items()
            },
        }
    return found


def _asked(
    seen: pd.DataFrame, runs: pd.DataFrame, families: Sequence[str], trials: int, seed: int
) -> Asked:
    runs = runs[~runs["noisy"]].reset_index(drop=True)
    own = Validation(seen.reset_index(drop=True), None, ask.INNER, seed, cache=FoldCache())
    found = learn(own, families, trials=trials, budget_s=float("inf"))
    model = fit_one(own, found, found.best)
    calibrated_model = calibrated(own, found, model, found.best, ask.FACTOR, None)
    residuals = scaled_residuals(own.table, found.found[found.best], TARGETS)[:, WALL]
    rows, hosts = rows_of(runs), runs["host_class"].tolist()
    quantiles, _ = calibrated_model.quantiles(
        rows, runs["cpus"].tolist(), None, hosts, LOWER, UPPER
    )
    spread = calibrated_model.model.spread(rows, None)[:, WALL]
    law = PredictedLaw.of_residuals(residuals)
    return Asked(
        own.table, runs, law, quantiles[:, WALL, 1], spread[:, 0], spread[:, 1],
        quantiles[:, MEMORY, 2],
    )  # fmt: skip


def _costs(
    asked: Sequence[Asked],
    prices: tuple[float, float, float | str],
    site_default_s: float,
    waiting: Waiting,
    seed: int,
) -> dict[str, Any]:
    alpha, beta, gamma = prices
    replayed: dict[str, list[Replayed]] = {}
    held: dict[str, list[np.ndarray]] = {}
    implied = omniscient = 0.0
    for one in asked:
        seen_s = one.seen.sort_values("started_at")["runtime_s"].to_numpy(dtype=float)
        price = float(np.median(seen_s)) if isinstance(gamma, str) else gamma
        cost = CostModel(alpha, beta, price)
        runtime_s = one.runs["runtime_s"].to_numpy(dtype=float)
        ways = plans(
            seen_s, one.median_s, one.residuals, runtime_s, cost,
            down=one.down, up=one.up, site_default_s=site_default_s,
        )  # fmt: skip
        most = np.full(len(one.runs), float(one.seen["peak_rss_bytes"].max()))
        for way, plan in ways.items():
            replayed.setdefault(way, []).append(replay(plan, runtime_s, cost, waiting))
            own = {"per_image": one.memory_bytes, "clairvoyant": _peaks(one)}
            held.setdefault(way, []).append(own.get(way, most))
        many = many_requests(one.residuals, cost, one.median_s, one.down, one.up)
        implied += float(many.expected_cost.sum())
        omniscient += float((many.expected_cost / many.normalised_cost).sum())
    runs = pd.concat([one.runs for one in asked], ignore_index=True)
    accounts = {
        way: account(
            _joined(parts), runs["runtime_s"], runs["cpus"], np.concatenate(held[way]),
            runs["peak_rss_bytes"], runs["subject"].tolist(), seed,
        )
        for way, parts in replayed.items()
    }  # fmt: skip
    by_image, population = (accounts[way].normalised_cost for way in ("per_image", "population"))
    return {
        "ways": {way: asdict(own) for way, own in accounts.items()},
        "implied": implied / omniscient,
        "over_implied": by_image / (implied / omniscient),
        "excess_left": (by_image - 1) / (population - 1),
    }


def _peaks(one: Asked) -> np.ndarray:
    found: np.ndarray = one.runs["peak_rss_bytes"].to_numpy(dtype=float)
    return found


def _joined(parts: Sequence[Replayed]) -> Replayed:
    return Replayed(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("cost", "omniscient", "attempts", "busy_s", "turnaround_s")
        )
    )
