"""The zoo on any table: judged on groups that it has not seen, then fitted on all rows.

Judging is nested. In each outer fold families are tuned, blended, chosen and calibrated by folds
within its training groups alone, and then asked about the groups held out; what is reported of
the chosen model is what that procedure gave, whoever it chose in each fold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.any_table import Columns, feature_table
from voxcast.features.table import rows_of
from voxcast.files import read_json, write_json
from voxcast.models.extrapolation import fit_extrapolator
from voxcast.models.forecaster import Forecaster
from voxcast.models.metrics import scores, under_requests
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import calibrated, fit_all, fit_one, learn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.models.selection.learning import Learned

FAMILIES = ("median", "ridge", "additive", "tree", "forest", "extra_trees", "boosting",
            "quantile_boosting", "mlp", "gaussian_process")  # fmt: skip
TARGET = "target"
MOST_ROWS = 20_000  # learned from; of a larger table a sample
OUTER, INNER = 3, 3
FINAL_SHARE = 0.35  # of the time, for the model that is kept
REFIT_SHARE = 0.15  # of the time, for fitting it on all rows
FACTOR = 1.5  # see `voxcast.models.conformal`
MODEL_FILE = "table_model.json"
CHOSEN = "chosen"


@dataclass(frozen=True)
class TableModel:
    """A forecaster of one column of tables with certain columns."""

    columns: Columns
    quantile: float
    forecaster: Forecaster

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return ``prediction``, ``upper`` and ``out_of_range`` of each row, in its order.

        Raises
        ------
        TableError
            If a column that the model was fitted with is not there.
        """
        import pandas as pd

        rows = rows_of(feature_table(table, self.columns))
        found = self.forecaster.predict(
            rows, [1] * len(rows), [None] * len(rows),
            lower_quantile=1 - self.quantile, upper_quantile=self.quantile,
        )  # fmt: skip
        return pd.DataFrame(
            {
                "prediction": [one.quantiles[TARGET][1] for one in found],
                "upper": [one.quantiles[TARGET][2] for one in found],
                "out_of_range": [" ".join(one.out_of_range) for one in found],
            },
            index=table.index,
        )

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``."""
        self.forecaster.save(folder)
        content = {"columns": vars(self.columns), "quantile": self.quantile}
        write_json(folder / MODEL_FILE, content)

    @classmethod
    def load(cls, folder: Path) -> TableModel:
        """Read what `save` wrote.

        Raises
        ------
        ModelError
            If there is no such model.
        """
        if not (folder / MODEL_FILE).is_file():
            raise ModelError("holds no model of a table", folder, "fit one with `voxcast fit`")
        content = read_json(folder / MODEL_FILE)
        own: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content["columns"].items()
        }
        return cls(Columns(**own), content["quantile"], Forecaster.load(folder))


@dataclass(frozen=True)
class Fitted:
    """A model and how it was judged.

    Attributes
    ----------
    metrics : dict
        Of the procedure, on groups not seen: ``mae mape median_ape upp ov_mape coverage``.
    candidates : dict of str to dict
        The same of every family and ensemble.
    family : str
        Who was chosen on all rows.
    rows, groups, trials : int
        Learned from; and tried for the model that is kept.
    deterministic : bool
        Whether the clock had no part in it.
    """

    model: TableModel
    metrics: dict[str, float]
    candidates: dict[str, dict[str, float]]
    family: str
    rows: int
    groups: int
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
    ended: Sequence[str] = (),
    on_step: Callable[[str], None] = lambda what: None,
) -> Fitted:
    """Judge the zoo on a table and fit it.

    Parameters
    ----------
    table : DataFrame
        Rows with a label, see `voxcast.features.any_table.learnable`.
    quantile : float
        Level of the upper bound.
    trials : int
        Sets of parameters tried for each family, in each outer fold and at the end.
    budget_s : float
        For all of it. Each family gets one trial in each fold, whatever the clock says.
    ended : sequence of str
        Groups with a run that was ended before it was done, see
        `voxcast.features.any_table.ended_groups`; they count where bounds are calibrated.
    on_step : callable
        Called with what is done next.
    """
    begun = time.monotonic()
    whole = _validation(table, columns, seed, ended)
    outer = Validation(whole.table, None, OUTER, seed + 1, whole.targets).folds()
    predicted: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    cut_short = False
    for number, (train, held_out) in enumerate(outer):
        until = begun + budget_s * (1 - FINAL_SHARE) * (number + 1) / len(outer)
        part = whole.part(train)
        fold = f"fold {number + 1} of {len(outer)}"
        found = learn(
            part, families, trials=trials, budget_s=until - time.monotonic(),
            on_family=partial(_said, on_step, fold),
        )  # fmt: skip
        cut_short |= found.cut_short
        for name, answer in _answers(part, found, whole.part(held_out), quantile):
            predicted.setdefault(name, []).append((held_out, *answer))
    judged = {name: _judge(whole, own, quantile) for name, own in predicted.items()}
    left_s = begun + budget_s * (1 - REFIT_SHARE) - time.monotonic()
    final = learn(
        whole, families, trials=trials, budget_s=left_s,
        on_family=partial(_said, on_step, "all rows"),
    )  # fmt: skip
    model = fit_one(whole, final, final.best, "header")
    extrapolator = fit_extrapolator(whole, final.tuned, FACTOR, "header")
    calibrated_model = calibrated(whole, final, model, final.best, FACTOR, extrapolator)
    return Fitted(
        TableModel(columns, quantile, Forecaster({"header": calibrated_model})),
        judged.pop(CHOSEN),
        judged,
        final.best,
        len(whole.table),
        int(whole.table["subject"].nunique()),
        final.trials,
        not (cut_short or final.cut_short),
    )


def _said(on_step: Callable[[str], None], where: str, family: str) -> None:
    on_step(f"{where}: {family}")


def _validation(
    table: pd.DataFrame, columns: Columns, seed: int, ended: Sequence[str]
) -> Validation:
    """Return the rows to learn from; of a large table as many whole groups as may be."""
    learned = feature_table(table, columns)
    groups = np.arange(len(table)) if columns.group is None else table[columns.group]
    learned["subject"] = np.asarray(groups).astype(str)
    learned[TARGET] = table[columns.target].astype(float)
    learned = learned.reset_index(drop=True)
    if len(learned) > MOST_ROWS:
        names = np.random.default_rng(seed).permutation(learned["subject"].unique())
        sizes = learned["subject"].value_counts().loc[names].cumsum()
        kept = names[: max(2, int((sizes <= MOST_ROWS).sum()))]
        learned = learned[learned["subject"].isin(set(kept))].reset_index(drop=True)
    censored = {("", name) for name in ended}
    return Validation(learned, None, INNER, seed, (TARGET,), censored=censored)


def _answers(
    part: Validation, found: Learned, asked: Validation, quantile: float
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Give what every candidate, and the one chosen, says of rows: prediction and upper bound."""
    models = fit_all(part, found, "header")
    rows = rows_of(asked.table)
    extrapolator = fit_extrapolator(part, found.tuned, FACTOR, "header")
    for name in models:
        calibrated_model = calibrated(part, found, models[name], name, FACTOR, extrapolator)
        forecaster = Forecaster({"header": calibrated_model})
        said = forecaster.predict(
            rows,
            [1] * len(rows),
            [None] * len(rows),
            lower_quantile=1 - quantile,
            upper_quantile=quantile,
        )
        medians, uppers = (np.array([o.quantiles[TARGET][k] for o in said]) for k in (1, 2))
        yield name, (medians, uppers)
        if name == found.best:
            yield CHOSEN, (medians, uppers)


def _judge(
    whole: Validation,
    answers: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    quantile: float,
) -> dict[str, Any]:
    at, medians, uppers = (np.concatenate(own) for own in zip(*answers, strict=True))
    actual = whole.table[TARGET].to_numpy()[at]
    exceeded, groups, interval = under_requests(actual, uppers, whole.table["subject"].iloc[at])
    return {
        "mae": float(np.abs(medians - actual).mean()),
        **scores(actual, medians),
        "coverage": float((actual <= uppers).mean()),
        "groups_above": exceeded / groups,
        "groups_above_interval": list(interval),
        "asked_over_used": float(uppers.sum() / actual.sum()),
    }
