"""The champion as a service holds it: one version, replaced as a whole by another."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.errors import ModelError, VoxcastError, one_line
from voxcast.serving.bundle import Bundle
from voxcast.serving.prediction_service import PredictionService

if TYPE_CHECKING:
    from fastapi import Request

    from voxcast.web.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """One version of the registered model; requests that began with it end with it.

    Attributes
    ----------
    version : str
        Its number.
    predictions : PredictionService
        Answers rows of requests.
    damaged : dict of str to str
        Why an application of it is not served.
    """

    version: str
    predictions: PredictionService
    damaged: dict[str, str]

    @property
    def bundle(self) -> Bundle:
        """The facts of its applications."""
        return self.predictions.bundle

    @property
    def intact_apps(self) -> set[str]:
        """The applications that it answers."""
        return set(self.bundle.facts) - set(self.damaged)

    @classmethod
    def load(cls, settings: Settings, number: str) -> ServedModel:
        """Load a version completely, and let each application answer once.

        A version whose files have changed is refused. Forecasters have hashes of
        their own: damaged ones are left out, as in every other use of a model. Networks
        are built.

        Raises
        ------
        ModelError
            If it cannot be read or was changed, or none of its applications answers.
        """
        bundle = settings.store.open(number)
        predictions = PredictionService(bundle, settings.machines)
        damaged = dict(bundle.damaged)
        for app in bundle.apps:
            try:
                predictions.warm(app)
            except VoxcastError as error:
                damaged[app] = one_line(error)
        for app, reason in damaged.items():
            logger.warning("version %s: %s is not served: %s", number, app, reason)
        if damaged.keys() >= bundle.facts.keys():
            raise ModelError(next(iter(damaged.values())), f"version {number}")
        return cls(number, predictions, damaged)


def served_model(request: Request) -> ServedModel:
    """Return the version that a request began with."""
    served: ServedModel = request.state.model
    return served
