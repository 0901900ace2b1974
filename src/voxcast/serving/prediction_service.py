"""Predictions of the registered model: from request rows to features to quantiles.

It does not import MLflow, so the predictions can be tested against the forecaster directly.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError, RequestError, RowError, VoxcastError
from voxcast.features.rows import features
from voxcast.files import atomic_folder, canonical_json
from voxcast.images.network_volume import network_from_bytes, network_to_bytes, volume_dtype
from voxcast.measure.host import host_facts
from voxcast.models import explanation
from voxcast.models.point_model import Query
from voxcast.models.speeds import with_machines
from voxcast.project import PROJECT_FILE
from voxcast.records import TARGETS, Configuration
from voxcast.serving.bundle import Bundle
from voxcast.serving.machines import MACHINES, read_machines
from voxcast.serving.model_store import MODELS, ModelStore
from voxcast.serving.rows import Row
from voxcast.serving.signature import EXAMPLE, QUANTILE, QUANTILES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.models.forecaster import Forecaster, Prediction
    from voxcast.serving.bundle import ServedApp
    from voxcast.serving.champion import Champion
    from voxcast.serving.machines import MachineSpeeds


REFERENCE = Path(__file__).parents[1] / "reference"  # the models of the package


@dataclass(frozen=True)
class PredictionService:
    """Predicts rows of requests, each row by the forecaster of its application.

    Attributes
    ----------
    bundle : Bundle
        The registered model.
    machines : Path, optional
        File with the speeds of machines that were measured after training; read again when it has
        changed.
    """

    bundle: Bundle
    machines: Path | None = None
    _read: dict[tuple[int, int, int], MachineSpeeds] = field(default_factory=dict, repr=False)

    @classmethod
    def of_project(cls, project: Path, version: str | None = None) -> PredictionService:
        """Open a version of a project, by default the champion; errors as `ModelStore.open`."""
        return cls(ModelStore.of(project).open(version), project / MACHINES)

    @classmethod
    def of_folder(cls, folder: Path, project: Path | None) -> PredictionService:
        """Open the folder of a version, with the speeds of machines of a project, if any."""
        machines = None if project is None else project / MACHINES
        return cls(Bundle.load(folder), machines)

    @classmethod
    def reference(cls) -> PredictionService:
        """Open the reference model of the package, with the speeds that this user measured.

        It was learned from the recorded campaigns on another machine, so its bounds are not
        calibrated here until ``voxcast measure --host`` has made some runs.
        """
        folder = user_project()
        if (folder / PROJECT_FILE).is_file() and (folder / MODELS).is_dir():
            return cls.of_project(folder)
        return cls(ModelStore(REFERENCE).open())

    def champion(self, app: str | None = None) -> Champion:
        """Return it with the defaults of an application; None stands for the only one.

        Raises
        ------
        ModelError
            See `voxcast.serving.bundle.Bundle.app_named`.
        """
        from voxcast.serving.champion import Champion

        served = self.bundle.app_named(app)
        points = self.network_points(served)
        speeds = self.bundle.forecaster(served.name).speeds
        return Champion(
            self.predict, served.name, served, points, served.configurations,
            reads_kernels=speeds is not None and speeds.gauge is not None,
        )  # fmt: skip

    @property
    def version(self) -> str:
        """Number of the version; empty if it was loaded from a bare folder."""
        return self.bundle.version

    @property
    def apps(self) -> dict[str, ServedApp]:
        """The applications that it predicts, by name."""
        return self.bundle.apps

    def forecaster(self, app: str) -> Forecaster:
        """Return the forecaster of an application, with all speeds of machines on record."""
        forecaster = self.bundle.forecaster(app)
        speeds = forecaster.speeds
        if speeds is None:
            return forecaster
        sha256 = self.bundle.apps[app].forecaster_sha256
        measured = {
            host: speed
            for (host, name, forecaster_sha256), speed in self._machine_speeds().items()
            if (name, forecaster_sha256) == (app, sha256)
        }
        if not measured:
            return forecaster
        return forecaster.with_speeds(with_machines(speeds, measured))

    def _machine_speeds(self) -> MachineSpeeds:
        if self.machines is None or not self.machines.is_file():
            return {}
        status = self.machines.stat()
        key = (status.st_ino, status.st_mtime_ns, status.st_size)
        if key not in self._read:
            self._read.clear()
            self._read[key] = read_machines(self.machines)
        return self._read[key]

    def predict(
        self,
        requests: Sequence[Mapping[str, Any]],
        quantile: float = QUANTILE,
        *,
        explain: bool = False,
    ) -> list[dict[str, Any]]:
        """Predict each row; the columns and their meaning are in `voxcast.serving.signature`.

        Parameters
        ----------
        requests : sequence of mapping
            Rows; see `voxcast.serving.rows.Row`.
        quantile : float
            Probability of the upper bounds; the lower bounds are at ``1 - quantile``.
        explain : bool
            Fill the column ``because``: a JSON list of the features that changed the runtime
            most, each with ``name factor value usual text``, see `voxcast.models.explanation`.

        Raises
        ------
        RequestError
            If a row is invalid; the message names the row and the problem. Or if the quantile is
            not allowed.
        """
        # JSON's null passes the signature.
        if not isinstance(quantile, int | float) or not 0.5 < quantile < 1:
            raise RequestError(f"must be above 0.5 and below 1, not {quantile}", "quantile")
        rows, queries, configurations = [], [], []
        for number, request in enumerate(requests):
            try:
                row = Row.of(request)
                query, configuration = self._query(row)
            except VoxcastError as error:
                raise RowError(number, error) from None
            rows.append(row)
            queries.append(query)
            configurations.append(configuration)
        predictions = self._predictions(queries, quantile)
        return [
            self._columns(row, query, configuration, prediction, explain=explain)
            for row, query, configuration, prediction in zip(
                rows, queries, configurations, predictions, strict=True
            )
        ]

    def warm(self, app: str) -> None:
        """Let an application answer once, so that no later request waits for a first use.

        Its forecaster is read and checked; the network, if it has one, is built and asked about a
        small volume.

        Raises
        ------
        ModelError
            If it cannot answer.
        """
        row: dict[str, Any] = {**EXAMPLE, "app": app}
        self.predict([row])
        served = self.bundle.app_named(app)
        if not self.network_points(served):
            return
        characteristics = dict.fromkeys(served.characteristics, 1.0)
        volume = network_to_bytes(np.ones((), volume_dtype(served.network_points)))
        of_network = Row.of(row | characteristics | {VOLUME: volume})
        query, _ = self._query(of_network)
        self.forecaster(app).predict([query])

    def _columns(
        self,
        row: Row,
        query: Query,
        configuration: Configuration,
        prediction: Prediction,
        *,
        explain: bool,
    ) -> dict[str, Any]:
        forecaster, served = self.forecaster(query.app), self.bundle.app_named(query.app)
        quantiles = {
            f"{target}_{name}": value
            for target in TARGETS
            for name, value in zip(QUANTILES, prediction.quantiles[target], strict=True)
        }
        knows_machines = forecaster.speeds is not None
        because = explanation.explain(forecaster, query) if explain else ()
        return {
            "app": query.app,
            "device": configuration.device,
            "cpus": float(configuration.cpus),
            "gpus": float(configuration.gpus),
            **quantiles,
            "input_level": prediction.input_level,
            "family": prediction.family,
            "network_points": float(self.network_points(served)),
            "calibrated": prediction.calibrated,
            "calibrated_at": served.promotion.promoted_at,
            "missing_subjects": prediction.missing_subjects,
            "measured_subjects": prediction.measured_subjects,
            "out_of_range": " ".join(prediction.out_of_range),
            "out_of_range_reason": "; ".join(forecaster.outside(query, prediction.out_of_range)),
            "host": query.host if knows_machines else "",
            "host_known": prediction.host_known,
            "host_runs": prediction.host_runs,
            **{f"speed_{n}": s for n, s in zip(QUANTILES, prediction.speed, strict=True)},
            "speed_basis": prediction.speed_basis,
            "model_version": self.bundle.version,
            "because": canonical_json([asdict(reason) for reason in because]) if explain else "",
        }

    def _predictions(self, queries: Sequence[Query], quantile: float) -> list[Prediction]:
        """Return one prediction for each query, application by application."""
        by_position: dict[int, Prediction] = {}
        for app in dict.fromkeys(query.app for query in queries):
            positions = [n for n, query in enumerate(queries) if query.app == app]
            predictions = self.forecaster(app).predict(
                [queries[n] for n in positions],
                lower_quantile=1 - quantile,
                upper_quantile=quantile,
            )
            by_position.update(zip(positions, predictions, strict=True))
        return [by_position[n] for n in range(len(queries))]

    def _query(self, row: Row) -> tuple[Query, Configuration]:
        served = self.bundle.app_named(row.app)
        configuration = row.configuration(served.configurations[0])
        devices = sorted({c.device for c in served.configurations})
        if configuration.device not in devices:
            raise ModelError(
                f"unknown device; the model has {', '.join(devices)}", configuration.device
            )
        parameters = row.parameters(served.parameters)
        content, volume = row.characteristics(served.characteristics), None
        if row.volume is not None and self.network_points(served):
            volume = network_from_bytes(row.volume, served.network_points)
        seen = features(row.header.columns(), content, served.name, parameters, configuration)
        host = row.host or _here()
        host_class, sitting = row.host_class, None
        speeds = self.forecaster(served.name).speeds
        if speeds is not None:
            sitting = speeds.current_sitting(host, datetime.now(UTC))
            kinds = {machine.host_class for machine in speeds.named(host)} - {""}
            host_class = host_class or (kinds.pop() if len(kinds) == 1 else None)
        query = Query(seen, configuration.cpus, host_class, volume, host, sitting, row.kernel_s)
        return query, configuration

    def network_points(self, served: ServedApp) -> int:
        """Return the size of the volume that the network of an application wants, or 0."""
        model = self.bundle.forecaster(served.name).model_at("volume").model
        return served.network_points if model.needs_volume else 0


@cache
def _here() -> str:
    """Return the id of this machine."""
    return host_facts().host_id


def user_project() -> Path:
    """Return the folder of this user in which a machine is measured outside of any project."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "voxcast"


def measured_project(create: Callable[[Path], object]) -> Path:
    """Return the folder of this user, made if missing, with the reference model as champion.

    Parameters
    ----------
    create : callable
        Writes the files of a project into a folder.

    Raises
    ------
    VoxcastError
        If the folder cannot be written.
    """
    folder = user_project()
    if not (folder / PROJECT_FILE).is_file():
        create(folder)
    if not (folder / MODELS).is_dir():
        with atomic_folder(folder / MODELS) as partial:
            shutil.copytree(REFERENCE, partial, dirs_exist_ok=True)
    return folder
