"""Answers of the registered model: rows of a request to features, features to quantiles.

No MLflow in here, so that the served answer can be tested against the forecaster directly.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ImageError, ModelError
from voxcast.features.rows import features
from voxcast.files import read_json
from voxcast.images.characteristics import characteristics
from voxcast.images.headers import ImageHeader
from voxcast.images.volumes import coarse_from_bytes, network_volume
from voxcast.models.forecaster import Forecaster, Prediction
from voxcast.records import TARGETS, Configuration
from voxcast.serving.schema import QUANTILES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import pandas as pd

    from voxcast.features.rows import Row

    # Characteristics and small volume by the bytes of a request's volume.
    Seen = dict[bytes, tuple[dict[str, float], np.ndarray | None]]


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
        configurations = [Configuration(**c) for c in content.pop("configurations")]
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

    def answer(self, requests: pd.DataFrame, quantile: float) -> pd.DataFrame:
        """Answer each row with the columns of `voxcast.serving.schema.signature`.

        Raises
        ------
        ModelError, ImageError
            Naming the row, for an unknown application or device, or a volume that cannot be read.
        """
        import pandas as pd

        rows, volumes, allocations, hosts = [], [], [], []
        seen: Seen = {}
        for number, given in enumerate(requests.to_dict("records")):
            request = {str(k): v for k, v in given.items() if not _missing(v)}
            try:
                row, volume, allocation = self._read(request, seen)
            except ImageError as error:
                raise ImageError(f"row {number}: {error}") from None
            rows.append(row)
            volumes.append(volume)
            allocations.append(allocation)
            hosts.append(request.get("host_class"))
        predictions = self.forecaster.predict(
            rows,
            [allocation.cpus for allocation in allocations],
            volumes,
            lower=1 - quantile,
            upper=quantile,
            host_classes=hosts,
        )
        return pd.DataFrame(
            [
                _columns(row, allocation, prediction)
                for row, allocation, prediction in zip(rows, allocations, predictions, strict=True)
            ]
        )

    def _read(
        self, request: Mapping[str, Any], seen: Seen
    ) -> tuple[Row, np.ndarray | None, Configuration]:
        app = str(request.get("app", next(iter(self.catalogue.apps))))
        if app not in self.catalogue.apps:
            known = ", ".join(self.catalogue.apps)
            raise ModelError(f"unknown application, this model knows {known}", app)
        allocation = self._allocation(request)
        parameters = {**self.catalogue.apps[app], **_parameters(request)}
        header = header_of(request)
        contents, volume = None, None
        if VOLUME in request:
            content = bytes(request[VOLUME])
            if content not in seen:  # one volume is asked about in several configurations
                seen[content] = self._look_at(content, header)
            contents, volume = seen[content]
        row = features(header.columns(), contents, app, parameters, allocation)
        return row, volume, allocation

    def _look_at(
        self, content: bytes, header: ImageHeader
    ) -> tuple[dict[str, float], np.ndarray | None]:
        coarse = coarse_from_bytes(content, header, self.catalogue.coarse_points)
        small = None
        if self.forecaster.tiers["volume"].model.needs_volume:
            small = network_volume(coarse, self.catalogue.network_points)
        return characteristics(coarse), small

    def _allocation(self, request: Mapping[str, Any]) -> Configuration:
        first = self.catalogue.configurations[0]
        device = str(request.get("device", first.device))
        known = sorted({c.device for c in self.catalogue.configurations})
        if device not in known:
            raise ModelError(f"unknown device, this model knows {', '.join(known)}", device)
        cpus = float(request.get("cpus", first.cpus))
        if cpus < 1 or cpus != int(cpus):
            raise ModelError(f"must be a whole number of at least 1, not {cpus:g}", "cpus")
        return Configuration(device, int(cpus), int(request.get("gpus", 0)))


def header_of(request: Mapping[str, Any]) -> ImageHeader:
    """Return the header that a request describes.

    Raises
    ------
    ImageError
        If a size is not a positive whole number or the type is not a numeric one.
    """
    import numpy as np

    shape = [float(request[f"shape_{axis}"]) for axis in "ijk"]
    if any(n < 1 or n != int(n) for n in shape):
        raise ImageError(f"shape must be three positive whole numbers, not {shape}")
    try:
        item_bytes = np.dtype(str(request["dtype"])).itemsize
    except TypeError:
        raise ImageError(f"unknown dtype {request['dtype']!r}", then="e.g. int16") from None
    return ImageHeader(
        shape=(int(shape[0]), int(shape[1]), int(shape[2])),
        spacing_mm=tuple(float(request[f"spacing_{axis}_mm"]) for axis in "ijk"),
        axcodes=str(request.get("axcodes", "RAS")),
        obliqueness_deg=float(request.get("obliqueness_deg", 0.0)),
        dtype=str(request["dtype"]),
        bytes_per_voxel=item_bytes,
        file_size_bytes=int(request["file_size_bytes"]),
    )


def _parameters(request: Mapping[str, Any]) -> dict[str, Any]:
    if "parameters_json" not in request:
        return {}
    try:
        parameters = json.loads(request["parameters_json"])
    except json.JSONDecodeError as error:
        raise ModelError(f"not JSON: {error}", "parameters_json") from None
    if not isinstance(parameters, dict):
        raise ModelError("must be a JSON object", "parameters_json")
    return parameters


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
        "level": prediction.level,
        "family": prediction.family,
        "calibrated": prediction.calibrated,
    }
