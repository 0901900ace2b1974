"""A registered model in MLflow's interface, run by the installed package.

``mlflow.pyfunc.load_model`` runs the code file in the model's folder, and imports the module that
its ``MLmodel`` names. Here neither is read: of the folder the bundle alone is, which is data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.pyfunc import PyFuncModel

    from voxcast.serving.prediction_service import PredictionService


class InstalledPredictor:
    """The predictor of this release.

    Parameters
    ----------
    service : PredictionService
        What answers.
    """

    def __init__(self, service: PredictionService) -> None:
        from voxcast.serving.predictor import VoxcastModel

        self.model = VoxcastModel()
        self.model.service = service

    def predict(
        self, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return predictions, as `voxcast.serving.predictor.VoxcastModel.predict`."""
        return self.model.predict(None, model_input, params)


def installed_model(service: PredictionService) -> PyFuncModel:
    """Return a model that checks requests as MLflow does, and then asks ``service``."""
    from mlflow.models import Model
    from mlflow.pyfunc import FLAVOR_NAME, PyFuncModel

    from voxcast.serving.signature import signature

    meta = Model(signature=signature(service.bundle.lab_characteristics))
    meta.add_flavor(FLAVOR_NAME, loader_module=__name__)
    return PyFuncModel(model_meta=meta, model_impl=InstalledPredictor(service))
