"""Answers of the registered model: rows of a request to features, features to quantiles.

No MLflow in here, so that the served answer can be tested against the forecaster directly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, VoxcastError
from voxcast.features.rows import features
from voxcast.files import canonical_json, read_json
from voxcast.images.characteristics import characteristics
from voxcast.images.headers import ImageHeader
from voxcast.images.volumes import coarse_from_bytes, network_volume
from voxcast.models.explanation import explain
from voxcast.models.forecaster import Forecaster, Prediction
from voxcast.records import TARGETS, Configuration
from voxcast.serving import request_rows
from voxcast.serving.signature import QUANTILES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.features.rows import Row

    # Characteristics and small volume, by a request's volume and header.
    Seen = dict[tuple[bytes, ImageHeader], tuple[dict[str, float], np.ndarray | None]]


@dataclass(frozen=True)
class ServedCatalogue:
    """What the model carries of the project it comes from.

    Attributes
    ----------
    apps : dict
        Parameters' defaults of each application, by name; the first is the default application.
    configurations : list of Configuration
        The allocations that were tried.
    coarse_points, network_points : int
        Grids of `voxcast.images.volumes`.
    """

    apps: dict[str, dict[str, Any]]
    configurations: list[Configuration]
    coarse_points: int
    network_points: int

    @classmethod
    def load(cls, path: Path) -> ServedCatalogue:
        """Read the model's ``catalogue.json``."""
        content = read_json(path)
        configurations = [Configuration.from_record(c) for c in content.pop("configurations")]
        return cls(configurations=configurations, **content)


class Answers:
    """The forecaster with its catalogue, answering tables of requests."""

    def __init__(self, forecaster: Forecaster, catalogue: ServedCatalogue) -> None:
        self.forecaster = forecaster
        self.catalogue = catalogue

    @classmethod
    def load(cls, forecaster: Path, catalogue: Path) -> Answers:
        """Read both from files."""
        return cls(Forecaster.load(forecaster), ServedCatalogue.load(catalogue))

    def answer(
        self, asked: pd.DataFrame, quantile: float, *, explained: bool = False
    ) -> pd.DataFrame:
        """Answer each row with the columns of `voxcast.serving.signature.signature`.

        With ``explained`` the column ``because`` says what moved the runtime most, as JSON: a list
        of ``name factor value usual``, see `voxcast.models.explanation`.

        Raises
        ------
        ModelError
            Naming the row and what is wrong with it.
        """
        import pandas as pd

        rows, volumes, allocations, hosts = [], [], [], []
        seen: Seen = {}
        for number, given in enumerate(asked.to_dict("records")):
            request = {str(k): v for k, v in given.items() if not _missing(v)}
            try:
                row, volume, allocation = self._read(request, seen)
            except VoxcastError as error:
                raise ModelError(f"row {number}: {error}") from None
            rows.append(row)
            volumes.append(volume)
            allocations.append(allocation)
            hosts.append(request.get("host_class"))
        predictions = self.forecaster.predict(
            rows,
            [allocation.cpus for allocation in allocations],
            volumes,
            lower_quantile=1 - quantile,
            upper_quantile=quantile,
            host_classes=hosts,
        )
        answers = pd.DataFrame(
            [
                _columns(row, allocation, prediction)
                for row, allocation, prediction in zip(rows, allocations, predictions, strict=True)
            ]
        )
        if explained:
            answers["because"] = [
                canonical_json([asdict(reason) for reason in explain(
                    self.forecaster, row, allocation.cpus, volume, host_class=host
                )])
                for row, volume, allocation, host in zip(
                    rows, volumes, allocations, hosts, strict=True
                )
            ]  # fmt: skip
        return answers

    def _read(
        self, request: Mapping[str, Any], seen: Seen
    ) -> tuple[Row, np.ndarray | None, Configuration]:
        app = str(request.get("app", next(iter(self.catalogue.apps))))
        if app not in self.catalogue.apps:
            known = ", ".join(self.catalogue.apps)
            raise ModelError(f"unknown application, this model knows {known}", app)
        allocation = request_rows.configuration(request, self.catalogue.configurations[0])
        devices = sorted({c.device for c in self.catalogue.configurations})
        if allocation.device not in devices:
            raise ModelError(f"unknown device, known are {', '.join(devices)}", allocation.device)
        parameters = request_rows.parameters(request, self.catalogue.apps[app])
        header = request_rows.header(request)
        contents, volume = None, None
        if VOLUME in request:
            key = bytes(request[VOLUME]), header
            if key not in seen:  # one volume is asked about in several configurations
                seen[key] = self._look_at(*key)
            contents, volume = seen[key]
        row = features(header.columns(), contents, app, parameters, allocation)
        return row, volume, allocation

    def _look_at(
        self, content: bytes, header: ImageHeader
    ) -> tuple[dict[str, float], np.ndarray | None]:
        coarse = coarse_from_bytes(content, header, self.catalogue.coarse_points)
        small = None
        if self.forecaster.models_by_input_level["volume"].model.needs_volume:
            small = network_volume(coarse, self.catalogue.network_points)
        return characteristics(coarse), small


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _columns(row: Row, allocation: Configuration, prediction: Prediction) -> dict[str, Any]:
    quantiles = {
        f"{target}_{name}": value
        for target in TARGETS
        for name, value in zip(QUANTILES, prediction.quantiles[target], strict=True)
    }
    return {
        "app": row["app"],
        "device": allocation.device,
        "cpus": float(allocation.cpus),
        **quantiles,
        "input_level": prediction.input_level,
        "family": prediction.family,
        "calibrated": prediction.calibrated,
        "out_of_range": " ".join(prediction.out_of_range),
    }
