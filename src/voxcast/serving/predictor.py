"""The registered model as code: MLflow logs this file and runs it when the model is loaded.

It only connects MLflow's interface to the installed package; nothing is unpickled.
"""

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from voxcast.errors import VoxcastError
from voxcast.models.forecaster import Forecaster
from voxcast.serving.prediction_service import PredictionService, ServedCatalogue


class VoxcastModel(PythonModel):
    """Predicts quantiles of every target, row by row."""

    def load_context(self, context: Any) -> None:
        """Read the forecaster and the catalogue from the model's files."""
        self.service = PredictionService(
            Forecaster.load(Path(context.artifacts["forecaster"])),
            ServedCatalogue.load(Path(context.artifacts["catalogue"])),
        )

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return predictions; an invalid request is a client error (HTTP 400)."""
        try:
            return self.service.predict(model_input, **(params or {}))
        except VoxcastError as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from error


mlflow.models.set_model(VoxcastModel())
