"""Study: how far a tenth of the cost goes when most of it is spent on scaled-down runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.table import rows_of
from voxcast.models.next_runs import propose
from voxcast.studies import contenders as ask
from voxcast.studies.holdouts import split
from voxcast.studies.judgement import errors
from voxcast.studies.recorded_table import DOWN, of_app

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

BUDGET = 0.1
FULL_SHARE = 0.5  # of the budget, for runs at full scale
FEWEST = 4  # runs
WORK, START = "header.log_working_voxels", 0.1  # a run costs its grid, and a start


def study(
    table: pd.DataFrame,
    *,
    folds: int = 5,
    seed: int = 0,
    trials: int = ask.TRIALS,
    on_step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Return, by application, errors at full scale after ways to spend a campaign.

    Each is asked about the same subjects, none of whom it has seen: ``all`` full-scale runs of the
    others; and for a tenth of their cost ``mixed`` (scaled-down and full-scale runs drawn at
    random, half of the cost each), ``full_only`` (drawn), or ``chosen``, full-scale runs too, but
    those that `voxcast.models.next_runs` proposes.
    """
    found: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        own = of_app(table, app)
        if not (own["scale"] == DOWN).any():
            found[app] = {"not_measurable": "no scaled-down runs"}
            continue
        on_step(app)
        said: dict[str, list[pd.DataFrame]] = {}
        costs: dict[str, list[float]] = {}
        for number, fold in enumerate(split(own, "subject", folds=folds, seed=seed).folds):
            test = own.iloc[fold.test]
            whole = own.iloc[fold.train]
            down = own[(own["scale"] == DOWN) & ~own["subject"].isin(set(test["subject"]))]
            for name, train in _campaigns(whole, down, seed + number).items():
                said.setdefault(name, []).append(ask.voxcast_answers(train, test, trials=trials))
                costs.setdefault(name, []).append(train["cpu_s"].sum() / whole["cpu_s"].sum())
        found[app] = {
            name: {"cost_share": float(np.mean(costs[name])), **errors(ask.pooled(own_said))}
            for name, own_said in said.items()
        }
    return found


def _campaigns(whole: pd.DataFrame, down: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
    import pandas as pd

    budget_s = BUDGET * whole["cpu_s"].sum()
    few = _drawn(whole, FULL_SHARE * budget_s, seed)
    cheap = _drawn(down, budget_s - few["cpu_s"].sum(), seed)
    return {
        "all": whole,
        "mixed": pd.concat([cheap, few]),
        "full_only": _drawn(whole, budget_s, seed),
        "chosen": _chosen(whole, budget_s, seed),
    }


def _drawn(runs: pd.DataFrame, budget_s: float, seed: int) -> pd.DataFrame:
    """Return runs in a random order until the budget is spent; a few at least."""
    order = np.random.default_rng(seed).permutation(len(runs))
    spent = runs["cpu_s"].to_numpy()[order].cumsum()
    return runs.iloc[order[: max(FEWEST, int((spent <= budget_s).sum()))]]


def _chosen(runs: pd.DataFrame, budget_s: float, seed: int) -> pd.DataFrame:
    """Return the runs that teach most for their cost, as far as can be said before any is made."""
    rows = rows_of(runs)
    expected = (
        np.exp(runs[WORK] - runs[WORK].max()) + START if WORK in runs else np.ones(len(runs))
    )
    order = [one.position for one in propose([], rows, list(expected), len(runs), seed=seed)]
    spent = runs["cpu_s"].to_numpy()[order].cumsum()
    return runs.iloc[order[: max(FEWEST, int((spent <= budget_s).sum()))]]


def ratio(found: dict[str, Any], way: str = "mixed", target: str = "cpu_s") -> float:
    """Return the error after a campaign over that after all of it."""
    return float(found[way][target]["mape"] / found["all"][target]["mape"])
