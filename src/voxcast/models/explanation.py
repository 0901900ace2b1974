"""Why a prediction is what it is, and which features a model depends on.

A prediction is explained by its change when one feature is set to its usual value. The importance
of a feature is the rise of the error when it is shuffled; beside it is the prediction as the
feature grows. Both are computed on held-out subjects. Columns that carry the same information,
such as voxels and their logarithm, change together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.descriptions import (
    QUANTITIES,
    change,
    natural,
    plain_name,
    plainest,
    stem,
    usual,
)
from voxcast.features.rows import feature_names
from voxcast.models.point_model import queries_of, regressed
from voxcast.models.selection import fitting
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.features.rows import Row
    from voxcast.models.families.family import Params
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.point_model import PointModel, Query
    from voxcast.models.selection.cross_validation import Validation

COUNT = 3
CPUS = "allocation.log2_cpus"
NEGLIGIBLE = 0.005  # of the logarithm: rounds to 0 per cent
TARGET = "cpu_s"  # of importance
NO_EFFECT = 1e-6  # of the coefficients of a law together: rounding of its fit
LEAST_POWER = 0.005  # of the CPUs in a law: a smaller one is written as 0
SHUFFLES = 3
FEATURES_PER_APP = 3  # features whose dependence is returned
QUANTILES = np.linspace(0.05, 0.95, 7)  # of a feature


@dataclass(frozen=True)
class Reason:
    """A feature that changed a prediction.

    Attributes
    ----------
    name : str
        Name of the quantity, such as ``foreground_voxels``.
    factor : float
        The prediction divided by that at the usual value.
    value, usual : float
        Its value in the query and its median over the training runs, in the unit of the quantity:
        voxels, CPUs.
    text : str
        The same as a phrase.
    """

    name: str
    factor: float
    value: float
    usual: float
    text: str


def explain(
    forecaster: Forecaster,
    query: Query,
    *,
    target: str = "runtime_s",
    count: int = COUNT,
) -> list[Reason]:
    """Return the features that changed a prediction most, largest change first.

    The small volume is not changed.
    """
    row = query.features
    usual_row = {name: usual(name, value) for name, value in forecaster.medians(query).items()}
    groups: dict[str, list[str]] = {}
    for name, value in usual_row.items():
        if isinstance(row.get(name), int | float) and row[name] != value:
            groups.setdefault(stem(name), []).append(name)
    changed = [_with_usual(query, usual_row, names) for names in groups.values()]
    (answer,) = forecaster.predict([query])
    predicted, *others = (
        prediction.quantiles[target][1] for prediction in [answer, *forecaster.predict(changed)]
    )
    reasons = [
        _reason(plainest(names), predicted / other, row, usual_row)
        for names, other in zip(groups.values(), others, strict=True)
    ]
    moved = [reason for reason in reasons if abs(np.log(reason.factor)) > NEGLIGIBLE]
    return sorted(moved, key=lambda reason: -abs(np.log(reason.factor)))[:count]


def _with_usual(query: Query, usual_row: Mapping[str, float], names: Sequence[str]) -> Query:
    features = {**query.features, **{name: usual_row[name] for name in names}}
    if CPUS in names:  # wall time follows the slowdown law, which has the number of its own
        return replace(query, features=features, cpus=round(natural(CPUS, usual_row[CPUS])))
    return replace(query, features=features)


def _reason(column: str, factor: float, row: Row, usual_row: Mapping[str, float]) -> Reason:
    name = plain_name(column)
    values = natural(column, float(row[column])), natural(column, usual_row[column])
    return Reason(name, factor, *values, change(name, factor, *values))


def law_in_words(model: PointModel) -> dict[str, str]:
    """Write the formulas of the family ``law``, by target: CPU time on the usual machine, memory.

    Sizes without an effect are left out.
    """
    (member,) = model.members
    names, words = member.encoder.columns, {}
    formulas = getattr(member.regressor, "formulas_", ())
    for target, law in zip(regressed(model.targets), formulas, strict=True):
        amount = format_seconds if target == TARGET else format_bytes
        least = NO_EFFECT * (law.constant + float(law.weights.sum()))
        terms = [amount(law.constant)] if law.constant > least else []
        for size, weight in zip(law.sizes, law.weights, strict=True):
            if weight > least:
                quantity = QUANTITIES[plain_name(names[size])].title
                terms.append(f"{amount(weight)} per million {quantity}")
        words[target] = " + ".join(terms)
        power = float(law.powers.sum()) / math.log(2)
        if abs(power) >= LEAST_POWER:
            words[target] = f"({words[target]}) × CPUs^{power:.2f}"
    return words


@dataclass(frozen=True)
class Importance:
    """Both tables; see `explain_model`."""

    shuffled: pd.DataFrame
    dependence: pd.DataFrame


def explain_model(validation: Validation, name: str, params: Params) -> Importance:
    """Return which features a recipe depends on when it predicts CPU time.

    Returns
    -------
    Importance
        ``shuffled``: ``app feature rise``, the rise of the mean absolute error in percentage
        points, a mean over folds weighted by their runs; ``dependence``: ``app feature quantile
        value factor`` for the top features of each application, the value in the unit of its
        quantity, and the mean prediction divided by that at the feature's median. Both are empty
        where no feature varies among the held-out runs of any fold.
    """
    import pandas as pd

    rng = np.random.default_rng(validation.seed)
    rises: list[dict[str, object]] = []
    dependence: list[dict[str, object]] = []
    for train, held_out in validation.folds():
        model = fitting.fit(validation.part(train), name, params, "volume")
        of_fold = _of_fold(model, validation.part(held_out), rng)
        rises += of_fold[0]
        dependence += of_fold[1]
    table = pd.DataFrame(rises, columns=["app", "feature", "rise", "runs"])
    sums = table.assign(rise=table["rise"] * table["runs"]).groupby(["app", "feature"]).sum()
    shuffled = (sums["rise"] / sums["runs"]).rename("rise").reset_index()
    shuffled = shuffled.sort_values(["app", "rise"], ascending=[True, False], ignore_index=True)
    top = shuffled[shuffled["rise"] > 0].groupby("app").head(FEATURES_PER_APP)
    columns = ["app", "feature", "quantile", "value", "factor"]
    of_top = pd.DataFrame(dependence, columns=columns).merge(top[["app", "feature"]])
    by_quantile = of_top.groupby(columns[:3], as_index=False, sort=False)
    return Importance(shuffled, by_quantile[["value", "factor"]].mean())


def _of_fold(
    model: PointModel, held_out: Validation, rng: np.random.Generator
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rises of the error, and the dependence on each feature, in held-out runs."""
    from pandas.api.types import is_numeric_dtype

    runs = held_out.table
    actual = np.log(runs[TARGET].to_numpy(dtype=float))

    def logs_with(**columns: Any) -> np.ndarray:
        logs = model.predict(queries_of(runs.assign(**columns), held_out.volumes))
        return logs[:, model.targets.index(TARGET)]

    def error_with(**columns: Any) -> float:
        return float(np.abs(np.expm1(logs_with(**columns) - actual)).mean())

    features: dict[str, list[str]] = {}
    for column in feature_names(runs):
        if is_numeric_dtype(runs[column]) and runs[column].nunique() > 1:
            features.setdefault(stem(column), []).append(column)
    rises: list[dict[str, object]] = []
    dependence: list[dict[str, object]] = []
    before = error_with()
    for feature, columns in features.items():
        row: dict[str, object] = {"app": str(runs["app"].iloc[0]), "feature": feature}
        orders = [rng.permutation(len(runs)) for _ in range(SHUFFLES)]
        errors = [error_with(**{c: runs[c].to_numpy()[o] for c in columns}) for o in orders]
        rise = float(100 * (np.mean(errors) - before))
        rises.append({**row, "rise": rise, "runs": len(runs)})
        logs = {
            q: logs_with(**{c: float(runs[c].quantile(q)) for c in columns}).mean()
            for q in (0.5, *QUANTILES.tolist())
        }
        plain = plainest(columns)
        for quantile in QUANTILES.tolist():
            value = natural(plain, float(runs[plain].quantile(quantile)))
            factor = float(np.exp(logs[quantile] - logs[0.5]))
            dependence.append({**row, "quantile": quantile, "value": value, "factor": factor})
    return rises, dependence
