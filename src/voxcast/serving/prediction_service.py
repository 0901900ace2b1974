"""Predictions of the registered model: from request rows to features to quantiles.

It does not import MLflow, so the predictions can be tested against the forecaster directly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, VoxcastError
from voxcast.features.rows import features
from voxcast.files import canonical_json
from voxcast.images.headers import ImageHeader
from voxcast.images.volumes import coarse_from_bytes, network_volume
from voxcast.models import explanation
from voxcast.models.query import Query
from voxcast.records import TARGETS, Configuration
from voxcast.serving import request_rows
from voxcast.serving.signature import QUANTILES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from voxcast.models.forecaster import Prediction
    from voxcast.serving.bundle import Bundle
    from voxcast.serving.served_app import ServedApp

    # Characteristics and small volume.
    Contents = tuple[dict[str, float], np.ndarray | None]
    # By application, voxels and header.
    ContentsByVolume = dict[tuple[str, bytes, ImageHeader], Contents]


@dataclass(frozen=True)
class PredictionService:
    """Predicts rows of requests, each row by the forecaster of its application."""

    bundle: Bundle

    def predict(
        self,
        requests: Sequence[Mapping[str, Any]],
        quantile: float = 0.95,
        *,
        explain: bool = False,
    ) -> list[dict[str, Any]]:
        """Predict each row; the columns are those of `voxcast.serving.signature.signature`.

        Parameters
        ----------
        requests : sequence of mapping
            Rows as `voxcast.serving.request_rows` reads them, without missing values.
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
        contents_by_volume: ContentsByVolume = {}
        queries, configurations = [], []
        for number, request in enumerate(requests):
            try:
                query, configuration = self._query(request, contents_by_volume)
            except VoxcastError as error:
                raise ModelError(f"row {number}: {error}") from None
            queries.append(query)
            configurations.append(configuration)
        predictions = self._predictions(queries, quantile)
        return [
            self._columns(query, configuration, prediction, explain=explain)
            for query, configuration, prediction in zip(
                queries, configurations, predictions, strict=True
            )
        ]

    def _columns(
        self, query: Query, configuration: Configuration, prediction: Prediction, *, explain: bool
    ) -> dict[str, Any]:
        forecaster = self.bundle.forecaster(query.app)
        reasons = forecaster.outside(query, prediction.out_of_range)
        columns = _prediction_columns(query.app, configuration, prediction)
        columns["out_of_range_reason"] = "; ".join(reasons)
        if explain:
            because = explanation.explain(forecaster, query)
            columns["because"] = canonical_json([asdict(reason) for reason in because])
        return columns

    def _predictions(self, queries: Sequence[Query], quantile: float) -> list[Prediction]:
        """Return one prediction for each query, application by application."""
        by_position: dict[int, Prediction] = {}
        for app in dict.fromkeys(query.app for query in queries):
            positions = [n for n, query in enumerate(queries) if query.app == app]
            predictions = self.bundle.forecaster(app).predict(
                [queries[n] for n in positions],
                lower_quantile=1 - quantile,
                upper_quantile=quantile,
            )
            by_position.update(zip(positions, predictions, strict=True))
        return [by_position[n] for n in range(len(queries))]

    def _query(
        self,
        request: Mapping[str, Any],
        contents_by_volume: ContentsByVolume,
    ) -> tuple[Query, Configuration]:
        name = request.get("app")
        served = self.bundle.app_named(None if name is None else str(name))
        configuration = request_rows.configuration_of(request, served.configurations[0])
        devices = sorted({c.device for c in served.configurations})
        if configuration.device not in devices:
            raise ModelError(
                f"unknown device; the model has {', '.join(devices)}", configuration.device
            )
        parameters = request_rows.parameters_of(request, served.parameters)
        header = request_rows.header_of(request)
        content, volume = None, None
        if VOLUME in request:
            voxels = bytes(request[VOLUME])
            key = served.name, voxels, header
            if key not in contents_by_volume:  # rows of one volume differ only in configuration
                contents_by_volume[key] = self._contents(served, voxels, header)
            content, volume = contents_by_volume[key]
        row = features(header.columns(), content, served.name, parameters, configuration)
        return Query(row, configuration.cpus, request.get("host_class"), volume), configuration

    def _contents(self, served: ServedApp, volume: bytes, header: ImageHeader) -> Contents:
        from voxcast.images.characteristics import characteristics

        coarse = coarse_from_bytes(volume, header, served.coarse_points)
        small = None
        if self.bundle.forecaster(served.name).model_at("volume").model.needs_volume:
            small = network_volume(coarse, served.network_points)
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
        "missing_subjects": prediction.missing_subjects,
        "measured_subjects": prediction.measured_subjects,
        "out_of_range": " ".join(prediction.out_of_range),
    }
