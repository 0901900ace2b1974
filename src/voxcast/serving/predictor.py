"""The registered model as code: MLflow logs this file and runs it when the model is loaded.

It only joins MLflow's interface with the installed package; nothing is unpickled.
"""

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from voxcast.errors import VoxcastError
from voxcast.serving.prediction_service import Answers


class VoxcastModel(PythonModel):
    """One row in, quantiles of every target out."""

    def load_context(self, context: Any) -> None:
        """Read the forecaster and the catalogue from the model's files."""
        files = context.artifacts
        self.answers = Answers.load(Path(files["forecaster"]), Path(files["catalogue"]))

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Answer a request; what is wrong with it is the caller's error (HTTP 400), not ours."""
        try:
            asked = params or {}
            return self.answers.answer(
                model_input,
                asked.get("quantile", 0.95),
                explained=asked.get("explain", False),
            )
        except VoxcastError as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from error


mlflow.models.set_model(VoxcastModel())
