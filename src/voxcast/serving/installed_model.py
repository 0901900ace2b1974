"""A registered model in MLflow's interface, run by the installed package.

``mlflow.pyfunc.load_model`` runs the code file in the model's folder, and imports the module that
its ``MLmodel`` names. Here neither is read: of the folder the bundle alone is, which is data.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from voxcast.serving.bundle import ARTIFACTS, FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from mlflow.pyfunc import PyFuncModel

    from voxcast.serving.prediction_service import PredictionService


class InstalledPredictor:
    """The predictor of this release with the bundle of a model.

    Parameters
    ----------
    bundle : Path
        Folder of the bundle.
    service : PredictionService, optional
        Answers; by default one of this bundle, with the machines that the environment names.

    Raises
    ------
    ModelError
        As `voxcast.serving.bundle.Bundle.load`.
    """

    def __init__(self, bundle: Path, service: PredictionService | None = None) -> None:
        from voxcast.serving.predictor import VoxcastModel

        self.model = VoxcastModel()
        if service is None:
            self.model.load_context(SimpleNamespace(artifacts={FOLDER: str(bundle)}))
        else:
            self.model.service = service

    def predict(
        self, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return predictions, as `voxcast.serving.predictor.VoxcastModel.predict`."""
        return self.model.predict(None, model_input, params)


def installed_model(folder: Path, service: PredictionService | None = None) -> PyFuncModel:
    """Return a model that checks requests as MLflow does; errors as `InstalledPredictor`.

    Parameters
    ----------
    folder : Path
        Folder of the model, as MLflow wrote it; see
        `voxcast.serving.registered_files.verify_files`.
    service : PredictionService, optional
        See `InstalledPredictor`.
    """
    from mlflow.models import Model
    from mlflow.pyfunc import FLAVOR_NAME, PyFuncModel

    from voxcast.serving.signature import signature

    predictor = InstalledPredictor(folder / ARTIFACTS / FOLDER, service)
    lab = predictor.model.service.bundle.lab_characteristics
    meta = Model(signature=signature(lab))
    meta.add_flavor(FLAVOR_NAME, loader_module=__name__)
    return PyFuncModel(model_meta=meta, model_impl=predictor)
