"""All families on any table: evaluated on held-out groups, then fitted on all rows.

The evaluation is nested. In each outer fold, families are tuned, blended, selected and calibrated
by folds within its training groups alone, and then predict the held-out groups. The metrics of
the selected model are those of the procedure, which may select another family in each fold.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.any_table import LARGEST, Columns, feature_table
from voxcast.models.continuation import continued
from voxcast.models.fit_times import measure
from voxcast.models.forecaster import Forecaster
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.query import queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard import GRID
from voxcast.models.selection.learning import ALWAYS, learn
from voxcast.models.selection.refitting import fit_forecaster, fit_forecasters
from voxcast.models.table_validation import (
    TARGET,
    configurations_of,
    held_out_metrics,
    novelty_of,
    sampled,
    validation_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.models.query import Query
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.models.table_validation import HeldOut, Novelty

FAMILIES = ("median", "ridge", "additive", "tree", "forest", "extra_trees", "boosting",
            "quantile_boosting", "mlp", "gaussian_process")  # fmt: skip
FIRST = ("median", "ridge", "boosting")  # of a table without time for all
OUTER = 3
FINAL_SHARE = 0.3  # of the time, for the model that is saved
LEARNING_SHARE = 0.85  # of the time; the rest is for the last fit and for saving
# Fits of all rows for one trial of a family: in each outer fold two thirds of the rows twice and
# once more to predict, then all rows twice and once more.
FITS = 9
TIMING_SHARE = 0.15  # of the time, for samples that tell how long fits take
ROWS_SHARE = 0.5  # of the time that is then left, for one trial of the families that are used
FACTOR = 1.5  # see `voxcast.models.conformal`
MODEL_FILE = "table_model.json"
CHOSEN = "chosen"
SEPARATOR = "; "  # a column's name may hold a space

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableModel:
    """A forecaster of one column, for tables with the columns of its training table.

    ``configurations`` are those of the training table where its bound is about new runs of them;
    it is empty where the bound is about others too.
    """

    columns: Columns
    quantile: float
    forecaster: Forecaster
    configurations: tuple[str, ...] = ()

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return ``prediction``, ``upper``, ``calibrated`` and ``out_of_range`` of each row.

        ``calibrated`` is whether ``upper`` holds with the model's probability. ``out_of_range``
        names the columns that are outside the range of the training rows, joined by `SEPARATOR`;
        it is empty where there are none. Such rows continue the trend of the others, see
        `voxcast.models.continuation`.

        Raises
        ------
        TableError
            If a column that the model needs is missing, or a number is a text.
        """
        import pandas as pd

        numbers = [name for name in self.columns.numbers if name in table]
        # In training infinity is a missing value; here it is out of range.
        finite = table[numbers].replace([np.inf, -np.inf], [LARGEST, -LARGEST])
        table = table.assign(**finite)
        queries = queries_of(feature_table(table, self.columns))
        predictions = continued(self.forecaster, queries, self.columns, self.quantile)
        is_covered = np.ones(len(table), dtype=bool)
        if self.configurations:
            is_covered = np.isin(configurations_of(table, self.columns), self.configurations)
        return pd.DataFrame(
            {
                "prediction": [p.quantiles[TARGET][1] for p in predictions],
                "upper": [p.quantiles[TARGET][2] for p in predictions],
                "calibrated": is_covered
                & np.array([p.calibrated for p in predictions], dtype=bool),
                "out_of_range": [
                    SEPARATOR.join(self.columns.names(p.out_of_range)) for p in predictions
                ],
            },
            index=table.index,
        )

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``."""
        self.forecaster.save(folder)
        content = {
            "columns": vars(self.columns),
            "quantile": self.quantile, "configurations": self.configurations,
        }  # fmt: skip
        write_sealed(folder / MODEL_FILE, content)

    @classmethod
    def load(cls, folder: Path) -> TableModel:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If ``folder`` contains no model of a table.
        """
        if not (folder / MODEL_FILE).is_file():
            raise ModelError("contains no model of a table", folder, "fit one with `voxcast fit`")
        content = read_sealed(folder / MODEL_FILE)
        columns: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content["columns"].items()
        }
        configurations = tuple(content.get("configurations", ()))
        return cls(
            Columns(**columns), content["quantile"], Forecaster.load(folder), configurations
        )


@dataclass(frozen=True)
class FittedTable:
    """A model of a table, and its evaluation.

    Attributes
    ----------
    metrics : dict
        Metrics of the procedure on held-out groups: ``mae mape median_ape upp ov_mape coverage``.
    candidates : dict of str to dict
        The same metrics for every family and ensemble.
    family : str
        Selected on all rows.
    rows, groups : int
        Size of the training table.
    novelty : {"groups", "configurations", "runs"}
        What is new about the rows that the metrics are of.
    trials : int
        Number of trials for the model that is saved.
    deterministic : bool
        Whether no search stopped at the time budget.
    """

    model: TableModel
    metrics: dict[str, float]
    candidates: dict[str, dict[str, float]]
    family: str
    rows: int
    groups: int
    novelty: Novelty
    trials: int
    deterministic: bool


def fit_table(
    table: pd.DataFrame,
    columns: Columns,
    *,
    quantile: float = 0.9,
    trials: int = 8,
    budget_s: float = float("inf"),
    seed: int = 0,
    families: Sequence[str] = FAMILIES,
    censored: pd.DataFrame | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> FittedTable:
    """Evaluate all families on a table, and fit the best on all rows.

    Parameters
    ----------
    table : DataFrame
        Rows with a label, see `voxcast.features.any_table.learnable`.
    quantile : float
        Probability of the upper bound.
    trials : int
        Number of trials per family, in each outer fold and for the final model.
    budget_s : float
        Total time for everything. Where it is too short for all rows, a sample of the groups is
        used; families of which no trial ends in its share are left out.
    censored : DataFrame, optional
        Rows that were stopped before they completed, see `voxcast.features.run_status`; they
        count where bounds are calibrated.
    on_step : callable
        Called with the name of the next step.
    """
    started = time.monotonic()
    validation = validation_of(table, columns, seed, censored)
    fit_times = None
    if math.isfinite(budget_s):
        ordered = [*(name for name in FIRST if name in families),
                   *(name for name in families if name not in FIRST)]  # fmt: skip
        fit_times = measure(
            validation.table, TARGET, ordered, budget_s=TIMING_SHARE * budget_s, seed=seed
        )
        affordable, rows = fit_times.affordable(
            len(validation.table),
            fits=FITS,
            budget_s=ROWS_SHARE * (started + budget_s - time.monotonic()),
            first=FIRST,
        )
        if too_slow := set(families) - {*affordable, *ALWAYS}:
            logger.info("left out, too slow for the time budget: %s", ", ".join(sorted(too_slow)))
        families = [name for name in families if name not in too_slow]
        validation = sampled(validation, rows)
    fit_s = None if fit_times is None else {
        name: fit_times.of(name, len(validation.table)) for name in fit_times.lines
    }  # fmt: skip
    outer = Validation(validation.table, None, OUTER, seed + 1, validation.targets).folds()
    predictions: dict[str, list[HeldOut]] = {}
    cut_short = False
    folds_end = started + budget_s * (1 - FINAL_SHARE)
    for number, (train, held_out) in enumerate(outer):
        fold_s = (folds_end - time.monotonic()) / (len(outer) - number)
        inner = validation.part(train)
        fold = f"fold {number + 1} of {len(outer)}"
        leaderboard = learn(
            inner, families, trials=trials, budget_s=fold_s,
            fit_s=fit_s, input_levels=("header",), on_family=partial(_report, on_step, fold),
        )  # fmt: skip
        cut_short |= leaderboard.cut_short
        if fit_s is not None:
            families = [name for name in families if name in leaderboard.tuned]
        queries = queries_of(validation.table.iloc[held_out])
        for name, medians, uppers in _candidates(inner, leaderboard, queries, columns, quantile):
            predictions.setdefault(name, []).append((held_out, medians, uppers))
    # A family that was too slow in one fold is not compared.
    metrics = {
        name: held_out_metrics(validation, folds)
        for name, folds in predictions.items()
        if len(folds) == len(outer)
    }
    final = learn(
        validation, families, trials=trials,
        budget_s=started + LEARNING_SHARE * budget_s - time.monotonic(), fit_s=fit_s,
        input_levels=("header",), on_family=partial(_report, on_step, "all rows"),
    )  # fmt: skip
    forecaster = fit_forecaster(validation, final, final.best, FACTOR)
    novelty = novelty_of(table, columns)
    configurations: tuple[str, ...] = ()
    if novelty == "runs":
        configurations = tuple(np.unique(configurations_of(table, columns)).tolist())
    return FittedTable(
        TableModel(columns, quantile, forecaster, configurations),
        metrics.pop(CHOSEN),
        metrics,
        final.best,
        len(validation.table),
        int(validation.table["subject"].nunique()),
        novelty,
        final.trials,
        not (cut_short or final.cut_short),
    )


def _report(on_step: Callable[[str], None], stage: str, family: str) -> None:
    on_step(f"{stage}: {family}")


def _candidates(
    inner: Validation,
    leaderboard: Leaderboard,
    queries: Sequence[Query],
    columns: Columns,
    quantile: float,
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield medians and upper bounds of every candidate, and of the selected one."""
    for name, forecaster in fit_forecasters(inner, leaderboard, list(leaderboard.params), FACTOR):
        predictions = continued(forecaster, queries, columns, quantile)
        medians, uppers = (np.array([p.quantiles[TARGET][k] for p in predictions]) for k in (1, 2))
        yield name, medians, uppers
        if name == leaderboard.best_family:
            yield GRID, medians, uppers
        if name == leaderboard.best:
            yield CHOSEN, medians, uppers
