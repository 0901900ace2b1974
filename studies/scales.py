"""Study: the accuracy of a campaign for a tenth of the cost, partly of scaled-down runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.evaluation import out_of_sample
from voxcast.evaluation.holdouts import split
from voxcast.evaluation.recorded_table import DOWN, of_app
from voxcast.evaluation.scoring import errors
from voxcast.features.table import rows_of
from voxcast.models.next_runs import propose

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from voxcast.models.selection.cross_validation import FoldCache

BUDGET = 0.1
FULL_SHARE = 0.5  # of the budget, for runs at full scale
MIN_RUNS = 4
# The cost of a run is taken to be proportional to its grid, plus a constant for its start.
WORK, START = "header.log_working_voxels", 0.1


def study(
    table: pd.DataFrame,
    *,
    folds: int = 5,
    seed: int = 0,
    trials: int = out_of_sample.TRIALS,
    cache: FoldCache | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application, errors at full scale for several training campaigns.

    All are scored on the same held-out subjects. ``all`` trains on all full-scale runs of the
    others. For a tenth of their cost, ``mixed`` trains on scaled-down and full-scale runs drawn at
    random, each for half of the cost; ``full_only`` on full-scale runs drawn at random; ``chosen``
    on the full-scale runs that `voxcast.models.next_runs` proposes.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        runs = of_app(table, app)
        if not (runs["scale"] == DOWN).any():
            results[app] = {"not_measurable": "no scaled-down runs"}
            continue
        on_step(app)
        predictions: dict[str, list[pd.DataFrame]] = {}
        costs: dict[str, list[float]] = {}
        for number, fold in enumerate(split(runs, "subject", folds=folds, seed=seed).folds):
            test = runs.iloc[fold.test]
            full = runs.iloc[fold.train]
            down = runs[(runs["scale"] == DOWN) & ~runs["subject"].isin(set(test["subject"]))]
            for name, train in _campaigns(full, down, seed + number).items():
                fold_predictions = out_of_sample.voxcast_predictions(
                    train, test, trials=trials, cache=cache
                )
                predictions.setdefault(name, []).append(fold_predictions)
                costs.setdefault(name, []).append(train["cpu_s"].sum() / full["cpu_s"].sum())
        results[app] = {
            name: {
                "cost_share": float(np.mean(costs[name])),
                **errors(out_of_sample.pooled(tables)),
            }
            for name, tables in predictions.items()
        }
    return results


def _campaigns(full: pd.DataFrame, down: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
    import pandas as pd

    budget_s = BUDGET * full["cpu_s"].sum()
    full_scale = _random_runs(full, FULL_SHARE * budget_s, seed)
    scaled_down = _random_runs(down, budget_s - full_scale["cpu_s"].sum(), seed)
    return {
        "all": full,
        "mixed": pd.concat([scaled_down, full_scale]),
        "full_only": _random_runs(full, budget_s, seed),
        "chosen": _proposed_runs(full, budget_s, seed),
    }


def _random_runs(runs: pd.DataFrame, budget_s: float, seed: int) -> pd.DataFrame:
    """Return runs in random order until the budget is spent, at least `LEAST_RUNS`."""
    order = np.random.default_rng(seed).permutation(len(runs))
    spent = runs["cpu_s"].to_numpy()[order].cumsum()
    return runs.iloc[order[: max(MIN_RUNS, int((spent <= budget_s).sum()))]]


def _proposed_runs(runs: pd.DataFrame, budget_s: float, seed: int) -> pd.DataFrame:
    """Return the most informative runs for their expected cost, given no runs on record."""
    rows = rows_of(runs)
    expected_cost = (
        np.exp(runs[WORK] - runs[WORK].max()) + START if WORK in runs else np.ones(len(runs))
    )
    proposals = propose([], rows, list(expected_cost), len(runs), seed=seed)
    order = [proposal.position for proposal in proposals]
    spent = runs["cpu_s"].to_numpy()[order].cumsum()
    return runs.iloc[order[: max(MIN_RUNS, int((spent <= budget_s).sum()))]]


def ratio(
    errors_by_campaign: dict[str, Any], campaign: str = "mixed", target: str = "cpu_s"
) -> float:
    """Return the error after a campaign over the error after all runs."""
    return float(
        errors_by_campaign[campaign][target]["mape"] / errors_by_campaign["all"][target]["mape"]
    )
