"""One model of all targets: a part for each application, and the slowdown law.

A part is an encoder and a regressor. Applications follow laws of their own, so a tabular
family learns each apart; the network, which needs every volume it can get, is one part for all
(`POOLED`), and so is a table that knows no applications. Where CPU time is among the targets, wall
time is not learned but follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from voxcast.features.table import rows_of
from voxcast.files import read_json, write_json
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.regressors import Regressor
from voxcast.models.families.zoo import NONE, Params, family
from voxcast.models.slowdown import SlowdownLaw
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row

# What is known of a volume: its header alone, or its voxels too.
InputLevel = Literal["header", "volume"]
INPUT_LEVELS: tuple[InputLevel, ...] = ("header", "volume")
CPU, WALL = "cpu_s", "runtime_s"
POOLED = ""


class Predictor(Protocol):
    """What one model and a blend of several have in common."""

    @property
    def law(self) -> SlowdownLaw | None:
        """How CPU time becomes wall time, if that is predicted."""

    def predict(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: np.ndarray | None,
        host_classes: Sequence[str | None] | None = None,
    ) -> np.ndarray:
        """Return natural logarithms, shape (n, targets)."""


@dataclass(frozen=True)
class AppModel:
    """What is learned of one application, or of all."""

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

    @property
    def needs_volume(self) -> bool:
        """Whether it cannot answer without the small volume."""
        return family(self.family).needs_volume

    def out_of_range(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        """Return in what each run is unlike all that were measured, see `Encoder.out_of_range`."""
        found: list[tuple[str, ...]] = [()] * len(rows)
        names = np.array([self._app_model_name(row) for row in rows], dtype=object)
        for name in dict.fromkeys(names):
            at = np.flatnonzero(names == name)
            for n, own in zip(
                at,
                self.models_by_app[name].encoder.out_of_range([rows[n] for n in at]),
                strict=True,
            ):
                new = name not in (_app(rows[n]), POOLED)
                found[n] = ("app", *(o for o in own if o != "app")) if new else own
        return found

    def usual(self, row: Row) -> dict[str, float]:
        """Return the medians of what it learned from, for the application of ``row``."""
        return dict(self.models_by_app[self._app_model_name(row)].encoder.usual)

    def predict(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: np.ndarray | None,
        host_classes: Sequence[str | None] | None = None,
    ) -> np.ndarray:
        """Return natural logarithms, shape (n, targets).

        Parameters
        ----------
        rows : sequence of Row
            Features.
        cpus : sequence of int
            CPUs of each row, for the slowdown law.
        volumes : ndarray or None, shape (n, p, p, p)
            Small volumes, for a family that needs them.
        host_classes : sequence of str or None, optional
            Hosts, where known.
        """
        found = np.empty((len(rows), len(self.targets)))
        learned = regressed(self.targets)
        at_learned = np.array([self.targets.index(target) for target in learned])
        for part, at, x, seen in self._by_app_model(rows, volumes):
            found[np.ix_(at, at_learned)] = part.regressor.predict(x, seen)
        if self.law is not None:
            hosts = host_classes or [None] * len(rows)
            ratio = [
                self.law.ratio(_app(row), n, host)
                for row, n, host in zip(rows, cpus, hosts, strict=True)
            ]
            found[:, self.targets.index(WALL)] = found[:, self.targets.index(CPU)] + np.log(ratio)
        return found

    def spread(self, rows: Sequence[Row], volumes: np.ndarray | None) -> np.ndarray:
        """Return how far each answer may be off, (n, targets, 2); see `Regressor.spread`."""
        found = np.ones((len(rows), len(self.targets), 2))
        at_learned = np.array([self.targets.index(target) for target in regressed(self.targets)])
        for part, at, x, seen in self._by_app_model(rows, volumes):
            found[np.ix_(at, at_learned)] = part.regressor.spread(x, seen)
        if self.law is not None:
            found[:, self.targets.index(WALL)] = found[:, self.targets.index(CPU)]
        return found

    def _by_app_model(
        self, rows: Sequence[Row], volumes: np.ndarray | None
    ) -> Iterator[tuple[AppModel, np.ndarray, np.ndarray, np.ndarray | None]]:
        """Give each part with the positions of its rows, their matrix and their volumes."""
        names = np.array([self._app_model_name(row) for row in rows], dtype=object)
        for name in dict.fromkeys(names):
            at = np.flatnonzero(names == name)
            part = self.models_by_app[name]
            seen = None if volumes is None else volumes[at]
            yield part, at, part.encoder.transform([rows[n] for n in at]), seen

    def _app_model_name(self, row: Row) -> str:
        """Return the key of the model that answers; for an unknown application, the first one.

        `out_of_range` then names ``app``. A fold may leave out all subjects of an application.
        """
        return next(
            name for name in (_app(row), POOLED, *self.models_by_app) if name in self.models_by_app
        )

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``, each part into a folder of its own."""
        for name, part in self.models_by_app.items():
            inside = folder / (name or "pooled")
            inside.mkdir(parents=True, exist_ok=True)
            part.regressor.save(inside)
        content = {
            "family": self.family,
            "params": self.params,
            "input_level": self.input_level,
            "encoders": {
                name: part.encoder.to_json() for name, part in self.models_by_app.items()
            },
            "law": None if self.law is None else dict(self.law.ratios),
            "targets": list(self.targets),
        }
        write_json(folder / "point_model.json", content)

    @classmethod
    def load(cls, folder: Path) -> PointModel:
        """Read what `save` wrote."""
        content: dict[str, Any] = read_json(folder / "point_model.json")
        chosen = family(content["family"])
        parts = {
            name: AppModel(Encoder.from_json(encoder), chosen.load(folder / (name or "pooled")))
            for name, encoder in content["encoders"].items()
        }
        return cls(
            content["family"],
            content["params"],
            content["input_level"],
            parts,
            None if content["law"] is None else SlowdownLaw(content["law"]),
            tuple(content["targets"]),
        )


def fit(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    input_level: InputLevel,
    seed: int,
    targets: tuple[str, ...] = TARGETS,
) -> PointModel:
    """Fit a family on a training table.

    Parameters
    ----------
    table : DataFrame
        Completed runs, as `voxcast.features.table.build_table` makes them, or any rows with
        columns of features and targets.
    volumes : ndarray or None, shape (n_runs, p, p, p)
        Small volume of each run, for a family that needs it.
    name : str
        Family.
    params : dict
        Its parameters.
    input_level : {"header", "volume"}
        Whether the voxels' characteristics may be used.
    seed : int
        Of everything random in the fit.
    targets : tuple of str
        Columns to predict, all above zero.
    """
    chosen = family(name)
    groups = {POOLED: np.arange(len(table))}
    if not chosen.needs_volume and "app" in table:
        apps = table["app"].to_numpy()
        groups = {str(app): np.flatnonzero(apps == app) for app in sorted(set(apps))}
    parts = {}
    for group, at in groups.items():
        part, rows = table.iloc[at], rows_of(table.iloc[at])
        encoder = _encoder(rows, input_level, chosen.only(params))
        goal = np.log(part[list(regressed(targets))].to_numpy(dtype=float))
        regressor = chosen.build(params, seed, encoder.columns)
        seen = volumes[at] if chosen.needs_volume and volumes is not None else None
        parts[group] = AppModel(encoder, regressor.fit(encoder.transform(rows), goal, seen))
    law = None
    if CPU in targets and WALL in targets:
        columns = ("app", "cpus", "host_class", WALL, CPU)
        law = SlowdownLaw.fit(*(table[column].tolist() for column in columns))
    return PointModel(name, params, input_level, parts, law, targets)


def regressed(targets: Sequence[str]) -> tuple[str, ...]:
    """Return the targets that are learned; wall time follows from CPU time where both are."""
    return tuple(t for t in targets if not (t == WALL and CPU in targets))


def _encoder(rows: Sequence[Row], input_level: InputLevel, only: tuple[str, ...]) -> Encoder:
    content = input_level == "volume"
    encoder = Encoder.fit(rows, content=content, only=only)
    if only and only != NONE and not encoder.numbers:
        # A table of other columns than ours has no sizes to be restricted to.
        return Encoder.fit(rows, content=content)
    return encoder


def _app(row: Row) -> str:
    return str(row.get("app", POOLED))


def predict_table(model: Predictor, table: pd.DataFrame, volumes: np.ndarray | None) -> np.ndarray:
    """Return the logarithms that ``model`` predicts for the rows of a table, (n, targets)."""
    if model.law is None:
        return model.predict(rows_of(table), [], volumes)
    return model.predict(
        rows_of(table), table["cpus"].tolist(), volumes, table["host_class"].tolist()
    )


def actual_logs(table: pd.DataFrame, targets: Sequence[str] = TARGETS) -> np.ndarray:
    """Return the logarithms of the measured targets, shape (n, targets)."""
    logs: np.ndarray = np.log(table[list(targets)].to_numpy(dtype=float))
    return logs
