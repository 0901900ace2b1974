"""Predictions of the registered model: from request rows to features to quantiles.

It does not import MLflow, so the predictions can be tested against the forecaster directly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, VoxcastError
from voxcast.features.rows import features
from voxcast.files import canonical_json, read_json
from voxcast.images.characteristics import characteristics
from voxcast.images.headers import ImageHeader
from voxcast.images.volumes import coarse_from_bytes, network_volume
from voxcast.models import explanation
from voxcast.models.query import Query
from voxcast.records import TARGETS, Configuration
from voxcast.serving import request_rows
from voxcast.serving.signature import QUANTILES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.models.forecaster import Forecaster, Prediction

    # Characteristics and small volume.
    Contents = tuple[dict[str, float], np.ndarray | None]


@dataclass(frozen=True)
class ServedCatalogue:
    """Data of the project that the model needs, so that it can predict without the project.

    Attributes
    ----------
    apps : dict
        Default parameters of each application, by name; the first application is the default.
    configurations : list of Configuration
        The allocations that were measured.
    coarse_points, network_points : int
        Grid sizes, see `voxcast.images.volumes`.
    """

    apps: dict[str, dict[str, Any]]
    configurations: list[Configuration]
    coarse_points: int
    network_points: int

    @classmethod
    def load(cls, path: Path) -> ServedCatalogue:
        """Read the model's ``catalogue.json``."""
        content = read_json(path)
        configurations = [
            Configuration(c["device"], c["cpus"], c["gpus"]) for c in content.pop("configurations")
        ]
        return cls(configurations=configurations, **content)


@dataclass(frozen=True)
class PredictionService:
    """The forecaster with its catalogue; predicts tables of requests."""

    forecaster: Forecaster
    catalogue: ServedCatalogue

    def predict(
        self, requests: pd.DataFrame, quantile: float = 0.95, *, explain: bool = False
    ) -> pd.DataFrame:
        """Predict each row; the columns are those of `voxcast.serving.signature.signature`.

        Parameters
        ----------
        requests : DataFrame
            Rows as `voxcast.serving.request_rows` reads them.
        quantile : float
            Probability of the upper bounds; the lower bounds are at ``1 - quantile``.
        explain : bool
            Add the column ``because``: a JSON list of the features that changed the runtime most,
            each with ``name factor value usual text``, see `voxcast.models.explanation`.

        Raises
        ------
        ModelError
            If a row is invalid; the message names the row and the problem.
        """
        import pandas as pd

        contents_by_volume: dict[tuple[bytes, ImageHeader], Contents] = {}
        queries, configurations = [], []
        names = requests.columns.tolist()
        columns = (requests[name].tolist() for name in names)
        for number, values in enumerate(zip(*columns, strict=True)):
            request = {
                name: value
                for name, value in zip(names, values, strict=True)
                if not pd.isna(value)
            }
            try:
                query, configuration = self._query(request, contents_by_volume)
            except VoxcastError as error:
                raise ModelError(f"row {number}: {error}") from None
            queries.append(query)
            configurations.append(configuration)
        predictions = self.forecaster.predict(
            queries, lower_quantile=1 - quantile, upper_quantile=quantile
        )
        table = pd.DataFrame(
            [
                _prediction_columns(query.app, configuration, prediction)
                | {
                    "out_of_range_reason": "; ".join(
                        self.forecaster.outside(query, prediction.out_of_range)
                    )
                }
                for query, configuration, prediction in zip(
                    queries, configurations, predictions, strict=True
                )
            ]
        )
        if explain:
            table["because"] = [
                canonical_json(
                    [asdict(reason) for reason in explanation.explain(self.forecaster, query)]
                )
                for query in queries
            ]
        return table

    def _query(
        self,
        request: Mapping[str, Any],
        contents_by_volume: dict[tuple[bytes, ImageHeader], Contents],
    ) -> tuple[Query, Configuration]:
        apps, configurations = self.catalogue.apps, self.catalogue.configurations
        app = str(request.get("app", next(iter(apps))))
        if app not in apps:
            raise ModelError(f"unknown application; the model has {', '.join(apps)}", app)
        configuration = request_rows.configuration_of(request, configurations[0])
        devices = sorted({c.device for c in configurations})
        if configuration.device not in devices:
            raise ModelError(
                f"unknown device; the model has {', '.join(devices)}", configuration.device
            )
        parameters = request_rows.parameters_of(request, apps[app])
        header = request_rows.header_of(request)
        content, volume = None, None
        if VOLUME in request:
            key = bytes(request[VOLUME]), header
            if key not in contents_by_volume:  # rows of one volume differ only in configuration
                contents_by_volume[key] = self._contents(*key)
            content, volume = contents_by_volume[key]
        row = features(header.columns(), content, app, parameters, configuration)
        return Query(row, configuration.cpus, request.get("host_class"), volume), configuration

    def _contents(self, volume: bytes, header: ImageHeader) -> Contents:
        coarse = coarse_from_bytes(volume, header, self.catalogue.coarse_points)
        small = None
        if self.forecaster.model_at("volume").model.needs_volume:
            small = network_volume(coarse, self.catalogue.network_points)
        return characteristics(coarse), small


def _prediction_columns(
    app: str, configuration: Configuration, prediction: Prediction
) -> dict[str, Any]:
    quantiles = {
        f"{target}_{name}": value
        for target in TARGETS
        for name, value in zip(QUANTILES, prediction.quantiles[target], strict=True)
    }
    return {
        "app": app,
        "device": configuration.device,
        "cpus": float(configuration.cpus),
        **quantiles,
        "input_level": prediction.input_level,
        "family": prediction.family,
        "calibrated": prediction.calibrated,
        "out_of_range": " ".join(prediction.out_of_range),
    }
