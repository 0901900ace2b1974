"""The registered model as code: MLflow logs this file and runs it when the model is loaded.

It only connects MLflow's interface to the installed package; nothing is unpickled. The copy among
the files of a model outlives this release, so the modules of voxcast that it imports never move.
"""

import os
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import yaml
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc.model import PythonModel

from voxcast.errors import VoxcastError
from voxcast.serving.bundle import Bundle
from voxcast.serving.machines import VARIABLE
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import answer_table, rows_of

NOTE = "registered_model_meta"


class VoxcastModel(PythonModel):
    """Predicts quantiles of every target, row by row."""

    def load_context(self, context: Any) -> None:
        """Open the bundle among the model's files; forecasters are read when they are needed."""
        machines = os.environ.get(VARIABLE)
        folder = Path(context.artifacts["bundle"])
        bundle = Bundle.load(folder, version=noted_version(folder.parent.parent))
        self.service = PredictionService(bundle, Path(machines) if machines else None)

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return predictions; an invalid request is a client error (HTTP 400)."""
        try:
            answers = self.service.predict(rows_of(model_input), **(params or {}))
        except VoxcastError as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from error
        return answer_table(answers)


def noted_version(model: Path) -> str:
    """Return the version under which MLflow loaded a model; empty where it noted none.

    It notes it beside ``MLmodel`` where a model is loaded by its name in a registry
    (``mlflow.store.artifact.models_artifact_repo`` of MLflow 3).
    """
    try:
        content = yaml.safe_load((model / NOTE).read_text(encoding="utf-8"))
        return str(content["model_version"])
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):  # only a note
        return ""


mlflow.models.set_model(VoxcastModel())
