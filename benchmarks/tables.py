"""The model of `voxcast learn` beside plain models on tables in the shapes of public histories.

Errors are of unseen rows, of the same scale and of larger scales, so that the folds by which `fit`
evaluates itself are not needed. The interval of the coverage is that of a bound from so many
groups on so many unseen ones; repeats count as one. With a fixed number of trials the numbers do
not depend on the speed of the machine.

python benchmarks/tables.py [--trials N] [--out FILE] [KIND ...]
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from public_tables import KINDS, Kind, available, tables_of

RESULTS = Path(__file__).parents[1] / "results/bench/tables.json"
QUANTILE = 0.9
TRIALS = 2
ROWS = 1000  # of a larger table
MARGIN = 1.10  # times the error of the best plain model
# What `voxcast learn` is compared with, with usual settings: module, estimator and arguments in
# scikit-learn, and whether it takes logarithms of positive columns and standardised ones.
PLAIN: dict[str, tuple[str, str, dict[str, Any], bool]] = {
    "random_forest": ("ensemble", "RandomForestRegressor",
                      {"n_estimators": 200, "random_state": 0}, False),
    "extra_trees": ("ensemble", "ExtraTreesRegressor",
                    {"n_estimators": 200, "random_state": 0}, False),
    "histogram_boosting": ("ensemble", "HistGradientBoostingRegressor",
                           {"random_state": 0}, False),
    "gradient_boosting": ("ensemble", "GradientBoostingRegressor",
                          {"n_estimators": 200, "max_depth": 4, "subsample": 0.8,
                           "random_state": 0}, False),
    "ridge_on_logs": ("linear_model", "RidgeCV", {"alphas": np.logspace(-3, 3, 13)}, True),
    "nearest_neighbours": ("neighbors", "KNeighborsRegressor", {"weights": "distance"}, True),
    "median": ("dummy", "DummyRegressor", {"strategy": "median"}, False),
}  # fmt: skip
LEVELS = 60  # of a text; rarer ones count together


def compared(kind: Kind, trials: int, seed: int = 0) -> dict[str, Any]:
    """Fit one table and return errors and coverage, beside those of the plain models."""
    from voxcast.features.any_table import choose_columns, is_censored, learnable, statuses
    from voxcast.features.screening import screened
    from voxcast.models.regressor import fit_on_all
    from voxcast.models.table_model import validation_of

    tables = tables_of(replace(kind, rows=min(kind.rows, ROWS)), seed)
    columns = choose_columns(tables.train, kind.target, kind.group)
    usable, _ = learnable(tables.train, columns)
    censored = tables.train[is_censored(statuses(tables.train, (columns.target, columns.group)))]
    train = tables.train[usable]
    columns = screened(train, columns).columns
    validation = validation_of(train, columns, seed, censored)
    model, leaderboard = fit_on_all(validation, columns, quantile=QUANTILE, trials=trials)
    group_count = int(validation.table["subject"].nunique())
    features = [*columns.numbers, *columns.texts]
    others = [_measured(tables.unseen), _measured(tables.larger)]
    plain = plain_predictions(train, others, kind.target, features)
    largest = float(train[kind.target].max())
    record: dict[str, Any] = {
        "rows": len(train), "columns": len(features), "groups": group_count,
        "family": leaderboard.best,
    }  # fmt: skip
    for number, (part, rows) in enumerate(zip(("unseen", "larger"), others, strict=True)):
        if rows.empty:
            continue
        actual = rows[kind.target].to_numpy()
        answers = model.predict(rows)
        errors = {name: _errors(actual, values[number]) for name, values in plain.items()}
        best = min(errors, key=lambda name: errors[name]["mape"])
        fit = _errors(actual, answers["prediction"].to_numpy())
        calibrated = answers["calibrated"].to_numpy()
        repeats = len(train) / group_count
        record[part] = {
            "fit": fit, "best_plain": best, "plain": errors,
            "over_best_plain": fit["mape"] / errors[best]["mape"],
            "median_over_best_plain": fit["median_ape"]
            / min(plain_errors["median_ape"] for plain_errors in errors.values()),
            "largest_over_largest_label": float(answers["prediction"].max()) / largest,
            "largest_over_largest_true": float(answers["prediction"].max() / actual.max()),
            "calibrated_share": float(calibrated.mean()),
            "covered_if_flagged": _share(actual, answers, ~calibrated),
            "covered": _share(actual, answers, calibrated),
            "interval": _interval(group_count, int(calibrated.sum() / repeats)),
        }  # fmt: skip
    return record


def plain_predictions(
    train: pd.DataFrame, others: list[pd.DataFrame], target: str, features: list[str]
) -> dict[str, list[np.ndarray]]:
    """Return the predictions of every plain model for the rows of other tables.

    Each learns logarithms of the target. Numbers are filled with medians; texts become columns of
    zeros and ones.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    texts = [name for name in features if not pd.api.types.is_numeric_dtype(train[name])]
    numbers = [name for name in features if name not in texts]
    medians = train[numbers].median().fillna(0)
    levels = {name: train[name].value_counts().index[:LEVELS] for name in texts}
    positive = [name for name in numbers if train[name].min() > 0]

    def matrix(table: pd.DataFrame, logs: bool) -> np.ndarray:
        columns = table[numbers].fillna(medians).astype(float)
        if logs:
            smallest = train[positive].min()
            columns[positive] = np.log(columns[positive].clip(lower=smallest, axis=1))
        dummies = {
            f"{name}={level}": (table[name] == level).astype(float)
            for name in texts
            for level in levels[name]
        }
        return np.column_stack([columns.to_numpy(), *dummies.values()])

    predictions = {}
    for name, (module, kind, arguments, logs) in PLAIN.items():
        model = getattr(importlib.import_module(f"sklearn.{module}"), kind)(**arguments)
        model = make_pipeline(StandardScaler(), model) if logs else model
        model.fit(matrix(train, logs), np.log(train[target].to_numpy()))
        low, high = np.log(1e-30), np.log(1e30)
        predictions[name] = [
            np.exp(np.clip(model.predict(matrix(table, logs)), low, high)) if len(table) else
            np.empty(0) for table in others
        ]  # fmt: skip
    return predictions


def _measured(table: pd.DataFrame) -> pd.DataFrame:
    if "state" in table:
        table = table[table["state"] == "COMPLETED"]
    return table.reset_index(drop=True)


def _errors(actual: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    from voxcast.models.metrics import scores

    errors = scores(actual, predictions)
    return {name: errors[name] for name in ("mape", "median_ape", "log_mae")}


def _share(actual: np.ndarray, answers: pd.DataFrame, rows: np.ndarray) -> float | None:
    return float((actual <= answers["upper"].to_numpy())[rows].mean()) if rows.any() else None


def _interval(calibration: int, unseen: int) -> list[float] | None:
    """Return the 95 % interval of the coverage of a rank among so many scores.

    The share of unseen scores below it is of a beta-binomial distribution.
    """
    from scipy.stats import betabinom

    if not unseen:
        return None
    rank = min(int(np.ceil((calibration + 1) * QUANTILE - 1e-9)), calibration)
    law = betabinom(unseen, rank, calibration + 1 - rank)
    return [float(law.ppf(p)) / unseen for p in (0.025, 0.975)]


def summary_of(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return which kinds miss a bar."""
    unseen = {name: record["unseen"] for name, record in records.items()}
    larger = {name: record["larger"] for name, record in records.items() if "larger" in record}
    return {
        "worse_than_best_plain": {
            name: part["over_best_plain"]
            for name, part in unseen.items()
            if part["over_best_plain"] > MARGIN
        },
        "coverage_below_interval": {
            name: part["covered"]
            for name, part in unseen.items()
            if part["interval"] and part["covered"] < part["interval"][0]
        },
        "coverage_below_interval_of_larger": {
            name: part["covered"]
            for name, part in larger.items()
            if part["interval"] and part["covered"] < part["interval"][0]
        },
        **{
            name: max(part[name] for part in (*unseen.values(), *larger.values()))
            for name in ("largest_over_largest_label", "largest_over_largest_true")
        },
        "bound_over_best_plain": MARGIN,
    }


def main() -> int:
    """Compare all kinds, or those named; parts are kept as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"one of {', '.join(KINDS)}")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"unknown kind: {', '.join(sorted(unknown))}")
    names = args.kinds or available()
    records = {}
    if args.kinds and args.out.is_file():
        records = json.loads(args.out.read_text())["kinds"]
    for name in names:
        records[name] = compared(KINDS[name], args.trials, args.seed)
        content = {
            "trials": args.trials, "quantile": QUANTILE, "summary": summary_of(records),
            "kinds": {kind: records[kind] for kind in KINDS if kind in records},
        }  # fmt: skip
        args.out.write_text(json.dumps(content, indent=1) + "\n")
        part = records[name]["unseen"]
        print(f"{name}: {part['fit']['mape']:.1f} % beside {part['best_plain']} "
              f"({part['over_best_plain']:.2f} times), covered {part['covered']}")  # fmt: skip
    print(json.dumps(summary_of(records), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
