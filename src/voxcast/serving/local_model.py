"""The registered model in this process; MLflow is needed for malformed requests only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.serving.bundle import ARTIFACTS, FOLDER, Bundle
from voxcast.serving.mlflow_model import call, refusal
from voxcast.serving.signature import INPUT_TYPES, REQUIRED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from voxcast.serving.prediction_service import PredictionService


@dataclass(frozen=True)
class LocalModel:
    """The files of the registered model, and its bundle.

    Attributes
    ----------
    folder : Path
        Folder of the model, as MLflow wrote it.
    bundle : Bundle
        The bundle in it.
    machines : Path, optional
        See `voxcast.serving.prediction_service.PredictionService`.
    version : str, optional
        Number of its version in the registry; by default what MLflow noted in the folder.
    """

    folder: Path
    bundle: Bundle
    machines: Path | None = None
    version: str | None = None

    @classmethod
    def load(
        cls,
        folder: Path,
        machines: Path | None = None,
        version: str | None = None,
        index_sha256: str | None = None,
    ) -> LocalModel:
        """Open the bundle; parameters and errors as of `Bundle.load`."""
        bundle = Bundle.load(folder / ARTIFACTS / FOLDER, index_sha256)
        return cls(folder, bundle, machines, version)

    def predict(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
    ) -> list[dict[str, Any]]:
        """Return one row of predictions for each row of the request.

        Raises
        ------
        RequestError
            If the model rejects the request, with the message of the server.
        """
        lab = self.bundle.lab_characteristics
        cast_rows = [_cast(row, lab) for row in rows]
        valid_rows = [row for row in cast_rows if row is not None]
        if not rows or len(valid_rows) < len(rows):
            return self._predict_by_mlflow(rows, quantile, explain=explain)
        try:
            return self._service().predict(valid_rows, quantile, explain=explain)
        except ModelError as error:
            raise refusal(str(error), None) from None

    def _service(self) -> PredictionService:
        from voxcast.serving.prediction_service import PredictionService

        return PredictionService(self.bundle, self.machines, self.version)

    def _predict_by_mlflow(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool
    ) -> list[dict[str, Any]]:
        """Let MLflow cast or refuse rows that do not have the types of the signature."""
        from voxcast.serving.installed_model import installed_model

        model = installed_model(self._service())
        return call(model, rows, quantile, explain=explain)


def _cast(row: Mapping[str, Any], lab: Collection[str]) -> dict[str, Any] | None:
    """Return a row with the types of the signature, or None if that needs more than a number.

    Missing values are left out.
    """
    cast: dict[str, Any] = {}
    for name, value in row.items():
        kind = "double" if name in lab else INPUT_TYPES.get(name)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if kind == "double" and isinstance(value, int | float) and not isinstance(value, bool):
            cast[name] = float(value)
        elif (kind == "string" and isinstance(value, str)) or (
            kind == "binary" and isinstance(value, bytes)
        ):
            cast[name] = value
        else:
            return None
    return cast if cast.keys() >= REQUIRED_COLUMNS else None
