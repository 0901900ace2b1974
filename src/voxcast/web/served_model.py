"""The champion as a service holds it: one version, replaced as a whole when the alias moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.serving.champion_folder import champion_folder, version_in_database
from voxcast.serving.local_model import LocalModel
from voxcast.serving.prediction_service import PredictionService

if TYPE_CHECKING:
    from fastapi import Request

    from voxcast.serving.bundle import Bundle
    from voxcast.web.settings import Settings


@dataclass(frozen=True)
class ServedModel:
    """One version of the registered model; requests that began with it end with it.

    Attributes
    ----------
    version : str
        Its number in the registry; empty if that is not known.
    predictions : PredictionService
        Answers rows of requests.
    """

    version: str
    predictions: PredictionService

    @property
    def bundle(self) -> Bundle:
        """The facts of its applications."""
        return self.predictions.bundle

    @classmethod
    def champion(cls, settings: Settings) -> ServedModel:
        """Load the champion of the registry.

        Raises
        ------
        ModelError
            If there is none, or it cannot be read.
        """
        stored = version_in_database(settings.registry)
        model = LocalModel.load(champion_folder(settings.registry), settings.machines)
        version = "" if stored is None else stored.number
        return cls(version, PredictionService(model.bundle, settings.machines))


def served_model(request: Request) -> ServedModel:
    """Return the version that a request began with."""
    if not hasattr(request.state, "model"):
        request.state.model = request.app.state.model
    served: ServedModel = request.state.model
    return served
