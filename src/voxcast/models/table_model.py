"""A fitted model of any table: it predicts rows, is saved and read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.features.any_table import LARGEST, Columns, feature_table
from voxcast.models.conformal import BoundEvidence
from voxcast.models.forecaster import Forecaster
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.query import queries_of
from voxcast.models.table_validation import TARGET, configurations_of

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from voxcast.models.forecaster import Prediction

MODEL_FILE = "table_model.json"
SEPARATOR = "; "  # a column's name may hold a space
# Why a bound is not calibrated, beside `BoundEvidence.reason`.
OUT_OF_RANGE, NEW_CONFIGURATION, CUT_OFF = "out of range", "new configuration", "cut off"


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
        queries = queries_of(feature_table(table, self.columns))
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
            evidence.reason: evidence.missing > 0,
        }
        return [reason for reason, holds in reasons.items() if holds] or [CUT_OFF]

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
