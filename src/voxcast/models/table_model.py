"""A fitted model of any table, and the rows of a table as the training runs of a validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxcast.errors import ModelError, TableError
from voxcast.features.any_table import LARGEST, Columns, feature_table
from voxcast.models.conformal import BoundEvidence
from voxcast.models.forecaster import Forecaster
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.point_model import queries_of
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.speed_estimation import HOST, SITTING
from voxcast.models.speeds import residuals_of, updated

if TYPE_CHECKING:
    import pandas as pd

    Novelty = Literal["groups", "configurations", "runs"]
    from pathlib import Path

    from voxcast.models.forecaster import Prediction


TARGET = "target"
UNIT = "unit"  # column: what gives one score where bounds are calibrated
MAX_ROWS = 20_000  # a larger table is sampled
MIN_CONFIGURATIONS = 20  # fewer do not tell what others would be like: 19 calibrate 95 %
INNER = 3  # folds


def validation_of(
    table: pd.DataFrame,
    columns: Columns,
    seed: int,
    censored: pd.DataFrame | None = None,
) -> Validation:
    """Return the training rows; of a large table, as many complete groups as allowed.

    Without a group column every row gives a score of its own, so that a bound holds for new rows
    of the same mixture, under any folds.

    Parameters
    ----------
    censored : DataFrame, optional
        Rows that were stopped before they completed. They are grouped like the labelled ones.
    """
    novelty = novelty_of(table, columns)
    runs = _runs(table, columns, groups_of(table, columns, novelty))
    if columns.sitting and len(runs[[HOST, SITTING]].drop_duplicates()) > MOST_SITTINGS:
        problem = f"has more than {MOST_SITTINGS} sittings"
        raise TableError(problem, columns.sitting, "name stretches of time, such as days")
    stopped = None
    if censored is not None and columns.group is not None:
        censored = censored.dropna(subset=columns.group)
    if censored is not None and len(censored):
        names = groups_of(censored, columns, novelty)
        if novelty == "runs":
            names = np.array([f"stopped {name}" for name in names])
        stopped = _runs(censored, columns, names, "stopped row")
    return Validation(runs, None, INNER, seed, (TARGET,), stopped=stopped).sampled(MAX_ROWS)


def _runs(
    table: pd.DataFrame, columns: Columns, groups: np.ndarray, unit: str = "row"
) -> pd.DataFrame:
    """Return the features of rows with their groups, targets and, without a group, units."""
    import pandas as pd

    runs = _placed(feature_table(table, columns), table, columns)
    runs["subject"] = groups
    runs[TARGET] = pd.to_numeric(table[columns.target], errors="coerce")
    runs = runs.reset_index(drop=True)
    if columns.group is None:
        runs[UNIT] = [f"{unit} {n}" for n in range(len(runs))]
    return runs


def _placed(runs: pd.DataFrame, table: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Add the machine and the sitting of each row where a model knows machines; empty if unknown.

    A sitting is also the time of its runs: days count where its name states one.
    """
    if columns.machine is not None:
        for name, column in ((HOST, columns.machine), (SITTING, columns.sitting)):
            runs[name] = table[column].fillna("").astype(str) if column in table else ""
        runs["started_at"] = runs[SITTING]
    return runs


def novelty_of(table: pd.DataFrame, columns: Columns) -> Novelty:
    """Return the unit that is held out: groups, configurations, or runs of few configurations.

    A configuration is the features of a row. With many of them a new row may
    have another one, and repeats of one must not fall on both sides of a fold. With few the
    question is about new runs of the same.
    """
    if columns.group is not None:
        return "groups"
    distinct = len(np.unique(configurations_of(table, columns)))
    return "runs" if distinct < MIN_CONFIGURATIONS else "configurations"


def groups_of(table: pd.DataFrame, columns: Columns, novelty: Novelty) -> np.ndarray:
    """Return the group of each row, which is never split by a fold."""
    if novelty == "runs":
        return np.array([f"row {n}" for n in range(len(table))])
    if columns.group is None:
        return configurations_of(table, columns)
    names: np.ndarray = table[columns.group].astype(str).to_numpy()
    return names


def configurations_of(table: pd.DataFrame, columns: Columns) -> np.ndarray:
    """Return one text for each row, the same for rows of the same features."""
    from pandas.util import hash_pandas_object

    features = feature_table(table, columns)
    texts = {name: object for name in features if features[name].dtype.kind != "f"}
    hashes = hash_pandas_object(features.astype(texts), index=False)
    names: np.ndarray = hashes.astype(str).to_numpy()
    return names


MODEL_FILE = "table_model.json"
SEPARATOR = "; "  # a column's name may hold a space
# Why a bound is not calibrated, beside `BoundEvidence.reason`.
OUT_OF_RANGE, NEW_CONFIGURATION, CUT_OFF = "out of range", "new configuration", "cut off"
UNKNOWN_MACHINE = "unknown speed of the machine"
MOST_SITTINGS = 200


@dataclass(frozen=True)
class TableModel:
    """A forecaster of one column, for tables with the columns of its training table.

    ``configurations`` come from the training table where its bound is about new runs of them;
    it is empty where the bound is about others too.
    """

    columns: Columns
    quantile: float
    forecaster: Forecaster
    configurations: tuple[str, ...] = ()

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return ``prediction``, ``upper``, ``calibrated``, ``out_of_range`` and ``reason``.

        ``calibrated`` is whether ``upper`` holds with the model's probability. ``out_of_range``
        names the columns that are outside the range of the training rows, joined by `SEPARATOR`;
        it is empty where there are none. Such rows continue the trend of the training rows, see
        `voxcast.models.out_of_range`. ``reason`` says why a bound is not calibrated, in a few
        words joined by `SEPARATOR`; it is empty where it is.

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
        features = feature_table(table, self.columns)
        queries = queries_of(_placed(features, table, self.columns))
        predictions = self.forecaster.predict(
            queries, lower_quantile=1 - self.quantile, upper_quantile=self.quantile
        )
        is_covered = np.ones(len(table), dtype=bool)
        if self.configurations:
            is_covered = np.isin(configurations_of(table, self.columns), self.configurations)
        reasons = [
            self._reasons(prediction, covered=covered)
            for prediction, covered in zip(predictions, is_covered.tolist(), strict=True)
        ]
        return pd.DataFrame(
            {
                "prediction": [p.quantiles[TARGET][1] for p in predictions],
                "upper": [p.quantiles[TARGET][2] for p in predictions],
                "calibrated": [not because for because in reasons],
                "out_of_range": [
                    SEPARATOR.join(self.columns.names(p.out_of_range)) for p in predictions
                ],
                "reason": [SEPARATOR.join(because) for because in reasons],
            },
            index=table.index,
        )

    def _reasons(self, prediction: Prediction, *, covered: bool) -> list[str]:
        """Return why the bound of a row is not calibrated; empty if it is."""
        if covered and prediction.calibrated:
            return []
        evidence = self.evidence()
        reasons = {
            OUT_OF_RANGE: bool(prediction.out_of_range),
            NEW_CONFIGURATION: not covered,
            UNKNOWN_MACHINE: not prediction.host_known,
            evidence.reason: evidence.missing > 0,
        }
        return [reason for reason, holds in reasons.items() if holds] or [CUT_OFF]

    def updated(self, table: pd.DataFrame, machine: str, sitting: str) -> TableModel:
        """Return the model with the speed of a machine from further runs on it in one sitting.

        Parameters
        ----------
        table : DataFrame
            As the training table, with the target; rows out of range are left out. Rows without
            a column of groups are of one group each.

        Raises
        ------
        TableError
            If the model knows no machines, or the sitting already, or no row is in its range.
        """
        speeds, machine, sitting = self.forecaster.speeds, str(machine), str(sitting)
        if speeds is None:
            raise TableError("the model was not told the machine of each run", machine)
        if speeds.is_on_record(machine, sitting):
            then = "give all its runs at once, to the model without them"
            raise TableError("the sitting is on record", f"{machine}, {sitting}", then)
        predictions = self.forecaster.predict(queries_of(feature_table(table, self.columns)))
        group = self.columns.group
        subjects = range(len(table)) if group is None else table[group]
        runs = [
            {"sitting": sitting, "subject": subject, "started_at": sitting, TARGET: value}
            for subject, value in zip(subjects, table[self.columns.target], strict=True)
        ]
        residuals = residuals_of(runs, predictions, TARGET)
        if not residuals:
            raise TableError("no run is within the range of the training rows", machine)
        forecaster = self.forecaster.with_speeds(updated(speeds, machine, residuals))
        return replace(self, forecaster=forecaster)

    def evidence(self) -> BoundEvidence:
        """Return the evidence behind the bound: groups or rows, and how many were stopped."""
        calibrator = self.forecaster.model_at("header").calibrators[TARGET]
        unit = "rows" if self.columns.group is None else "groups"
        return BoundEvidence.of(calibrator, self.quantile, unit)

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
            raise ModelError(
                "contains no model of a table", folder, "train one with `voxcast learn TABLE`"
            )
        content = read_sealed(folder / MODEL_FILE)
        columns: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content["columns"].items()
        }
        columns["units"] = tuple((name, unit) for name, unit in columns.get("units", ()))
        configurations = tuple(content.get("configurations", ()))
        of_table, model = Columns(**columns), Forecaster.load(folder).model_at("header")
        forecaster = Forecaster({"header": replace(model, columns=of_table)})
        return cls(of_table, content["quantile"], forecaster, configurations)
