"""One value per target: a regressor for each application, and the slowdown law.

Applications differ in their laws, so a family is fitted to each separately; a table without
applications has one model (`POOLED`). Where CPU time is a target, wall time is not regressed but
derived from it. The regressor learns the work, that is the CPU time on the reference machine; the
speed of the machine is subtracted from its prediction, see `voxcast.models.speed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from voxcast.features.phase_labels import labels_of
from voxcast.features.speed_column import SPEED_DEVIATION, TIMES
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.family import Params, family
from voxcast.models.families.regressors import Regressor
from voxcast.models.families.training_matrix import training_matrix
from voxcast.models.model_files import read_sealed, subfolder, write_sealed
from voxcast.models.predictor import speed_estimates
from voxcast.models.query import queries_of, stacked_volumes
from voxcast.models.slowdown import SlowdownLaw
from voxcast.models.speed.estimation import log_speeds, speeds_by_app
from voxcast.models.speed.speeds import Speeds
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row
    from voxcast.models.predictor import Predictor
    from voxcast.models.query import Query

# The known part of a volume: its header alone, or its voxels too.
InputLevel = Literal["header", "volume"]
INPUT_LEVELS: tuple[InputLevel, ...] = ("header", "volume")
CPU, WALL = "cpu_s", "runtime_s"
POOLED = ""


@dataclass(frozen=True)
class AppModel:
    """Encoder and regressor of one application, or of a table without applications."""

    encoder: Encoder
    regressor: Regressor


@dataclass(frozen=True)
class PointModel:
    """A fitted model that predicts one value per target; see `fit`."""

    family: str
    params: Params
    input_level: InputLevel
    models_by_app: dict[str, AppModel]
    law: SlowdownLaw | None
    targets: tuple[str, ...] = TARGETS
    speeds: Mapping[str, Speeds] = field(default_factory=dict)

    @property
    def needs_volume(self) -> bool:
        """Whether every query must have its small volume."""
        return family(self.family).needs_volume

    @property
    def needs_content(self) -> bool:
        """Whether it learned from characteristics of the voxels."""
        return any(model.encoder.knows_content for model in self.models_by_app.values())

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return for each row the features out of range, see `Encoder.out_of_range`."""
        features: list[tuple[str, ...]] = [()] * len(rows)
        for name, indices in self._rows_by_app(rows):
            encoder = self.models_by_app[name].encoder
            names = encoder.out_of_range([rows[n] for n in indices])
            for n, outside in zip(indices, names, strict=True):
                unseen = name not in (str(rows[n].get("app", POOLED)), POOLED)
                features[n] = ("app", *(f for f in outside if f != "app")) if unseen else outside
        return features

    def joint_distances(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the distance of each row in combinations, see `Encoder.joint_distances`."""
        by_row: dict[int, dict[str, float]] = {}
        for name, indices in self._rows_by_app(rows):
            encoder = self.models_by_app[name].encoder
            far = encoder.joint_distances([rows[n] for n in indices])
            by_row.update(zip(indices.tolist(), far, strict=True))
        return [by_row[n] for n in range(len(rows))]

    def medians(self, query: Query) -> dict[str, float]:
        """Return the training medians of the features, for the application of ``query``."""
        return dict(self.models_by_app[self._model_key(query.features)].encoder.medians_by_column)

    def ranges(self, query: Query) -> dict[str, tuple[float, float]]:
        """Return the training ranges, for the application of ``query``."""
        encoder = self.models_by_app[self._model_key(query.features)].encoder
        return {name: (low, high) for name, low, high in encoder.ranges}

    def predict(self, queries: Sequence[Query]) -> np.ndarray:
        """Return natural logarithms, shape (n, targets)."""
        logs = np.empty((len(queries), len(self.targets)))
        for model, outputs, x, volumes in self._encoded(queries):
            logs[outputs] = model.regressor.predict(x, volumes)
        if self.speeds:
            estimates = speed_estimates(self, queries)
            logs[:, self.targets.index(CPU)] -= [estimate.log_speed for estimate in estimates]
        if self.law is not None:
            ratios = [self.law.ratio(q.app, q.cpus, q.host_class) for q in queries]
            cpu, wall = self.targets.index(CPU), self.targets.index(WALL)
            logs[:, wall] = logs[:, cpu] + np.log(ratios)
        return logs

    def speeds_of(self, app: str) -> Speeds | None:
        """Return the speeds of machines for an application, None where machines are not known."""
        return self.speeds.get(app)

    def with_speeds(self, speeds: Mapping[str, Speeds]) -> PointModel:
        """Return the model with other speeds of machines, by application."""
        return replace(self, speeds={**self.speeds, **speeds})

    def _encoded(
        self, queries: Sequence[Query]
    ) -> Iterator[tuple[AppModel, tuple[np.ndarray, ...], np.ndarray, np.ndarray | None]]:
        """Yield each model with the index of its outputs, its matrix and its volumes."""
        columns = np.array([self.targets.index(target) for target in regressed(self.targets)])
        rows = [query.features for query in queries]
        for name, at in self._rows_by_app(rows):
            model = self.models_by_app[name]
            x = model.encoder.transform([rows[n] for n in at])
            volumes = stacked_volumes([queries[n] for n in at]) if self.needs_volume else None
            yield model, np.ix_(at, columns), x, volumes

    def _rows_by_app(self, rows: Sequence[Row]) -> Iterator[tuple[str, np.ndarray]]:
        keys = np.array([self._model_key(row) for row in rows], dtype=object)
        for key in dict.fromkeys(keys):
            yield key, np.flatnonzero(keys == key)

    def _model_key(self, row: Row) -> str:
        """Return the key of the model for a row; for an unknown application, the first model.

        `out_of_range` then includes ``app``. A fold may hold out all subjects of an application.
        """
        keys = (str(row.get("app", POOLED)), POOLED, *self.models_by_app)
        return next(key for key in keys if key in self.models_by_app)

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``, with a subfolder for each application."""
        for name, model in self.models_by_app.items():
            app_folder = folder / (name or "pooled")
            app_folder.mkdir(parents=True, exist_ok=True)
            model.encoder.save(app_folder)
            model.regressor.save(app_folder)
        content = {
            "family": self.family,
            "params": self.params,
            "input_level": self.input_level,
            "apps": list(self.models_by_app),
            "law": None if self.law is None else dict(self.law.ratios),
            "targets": list(self.targets),
            "speeds": {app: speeds.to_json() for app, speeds in self.speeds.items()},
        }
        write_sealed(folder / "point_model.json", content)

    @classmethod
    def load(cls, folder: Path) -> PointModel:
        """Read what `save` wrote."""
        content = read_sealed(folder / "point_model.json")
        regressor_family = family(content["family"])
        models_by_app = {
            name: AppModel(Encoder.load(app_folder), regressor_family.load(app_folder))
            for name in content["apps"]
            for app_folder in [subfolder(folder, name or "pooled")]
        }
        return cls(
            content["family"],
            content["params"],
            content["input_level"],
            models_by_app,
            None if content["law"] is None else SlowdownLaw(content["law"]),
            tuple(content["targets"]),
            {app: Speeds.from_json(speeds) for app, speeds in content["speeds"].items()},
        )


def fit(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    input_level: InputLevel,
    seed: int,
    targets: tuple[str, ...] = TARGETS,
    speeds: Mapping[str, Speeds] | None = None,
) -> PointModel:
    """Fit a family on a training table.

    Parameters
    ----------
    table : DataFrame
        Completed runs as returned by `voxcast.features.training_table.build_table`, or any rows
        with columns of features and targets.
    volumes : ndarray or None, shape (n_runs,)
        Small volume of each run, for a family that needs it.
    name : str
        Family.
    params : dict
        Its parameters.
    input_level : {"header", "volume"}
        Whether the voxels' characteristics may be used.
    seed : int
        Seed of the fit.
    targets : tuple of str
        Columns to predict, all above zero.
    speeds : mapping of str to Speeds, optional
        By application, estimated from these runs alone; by default they are estimated here.
    """
    regressor_family = family(name)
    if speeds is None:
        speeds = speeds_by_app(table) if CPU in targets else {}
    groups = {POOLED: np.arange(len(table))}
    if "app" in table:
        apps = table["app"].to_numpy()
        groups = {str(app): np.flatnonzero(apps == app) for app in sorted(set(apps))}
    models_by_app = {}
    for app, indices in groups.items():
        runs = table.iloc[indices]
        target_logs = np.log(runs[list(regressed(targets))].to_numpy(dtype=float))
        if speeds:  # the work
            target_logs[:, regressed(targets).index(CPU)] += log_speeds(runs, speeds)
        labels = labels_of(runs) if regressor_family.needs_phases and CPU in targets else None
        cpu = regressed(targets).index(CPU) if CPU in targets else 0
        encoder, x = training_matrix(
            runs,
            target_logs,
            regressor_family.only(params),
            content=input_level == "volume",
            on_logs=regressor_family.scale(params) == "log",
        )
        regressor = regressor_family.build(params, seed, encoder.columns, labels, cpu)
        cubes = volumes[indices] if regressor_family.needs_volume and volumes is not None else None
        models_by_app[app] = AppModel(encoder, regressor.fit(x, target_logs, cubes))
    law = None
    if CPU in targets and WALL in targets:
        columns = ("app", "cpus", "host_class", WALL, CPU)
        law = SlowdownLaw.fit(*(table[column].tolist() for column in columns))
    return PointModel(name, params, input_level, models_by_app, law, targets, speeds)


def regressed(targets: Sequence[str]) -> tuple[str, ...]:
    """Return the targets that are regressed; wall time is derived if CPU time is among them."""
    return tuple(t for t in targets if not (t == WALL and CPU in targets))


def predict_table(model: Predictor, table: pd.DataFrame, volumes: np.ndarray | None) -> np.ndarray:
    """Return the logarithms that ``model`` predicts for the rows of a table, (n, targets)."""
    return model.predict(queries_of(table, volumes))


def log_targets(table: pd.DataFrame, targets: Sequence[str] = TARGETS) -> np.ndarray:
    """Return the logarithms of the measured targets, shape (n, targets)."""
    logs: np.ndarray = np.log(table[list(targets)].to_numpy(dtype=float))
    return logs


def log_targets_at_usual_speed(table: pd.DataFrame, targets: Sequence[str]) -> np.ndarray:
    """Return the same with the times that runs would have taken at the usual speed of a machine.

    Of runs of applications, as far as it is known; see `voxcast.features.usual_speed`.
    """
    logs = log_targets(table, targets)
    if "app" in table and SPEED_DEVIATION in table:
        deviations = table[SPEED_DEVIATION].to_numpy(dtype=float)
        logs[:, np.isin(targets, TIMES)] += deviations[:, None]
    return logs
