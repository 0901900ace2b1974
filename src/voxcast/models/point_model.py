"""One model of all targets: a part for each application, and the slowdown law.

A part is an encoder of columns and a regressor of CPU time and memory. Applications follow laws of
their own, so a tabular family learns each apart; the network, which needs every volume it can
get, is one part for all (`POOLED`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxcast.features.table import rows_of
from voxcast.files import read_json, write_json
from voxcast.models.encoder import Encoder
from voxcast.models.families import Params, family
from voxcast.models.regressors import Regressor
from voxcast.models.slowdown import SlowdownLaw
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from voxcast.features.rows import Row

# What is known of a volume: its header alone, or its voxels too.
Level = Literal["header", "volume"]
LEVELS: tuple[Level, ...] = ("header", "volume")
_REGRESSED = ("cpu_s", "peak_rss_bytes")


POOLED = ""


@dataclass(frozen=True)
class Part:
    """What is learned of one application, or of all."""

    encoder: Encoder
    regressor: Regressor


@dataclass(frozen=True)
class PointModel:
    """A fitted model that predicts one value per target; see `fit`."""

    family: str
    params: Params
    level: Level
    parts: dict[str, Part]
    law: SlowdownLaw

    @property
    def needs_volume(self) -> bool:
        """Whether it cannot answer without the small volume."""
        return family(self.family).needs_volume

    def beyond(self, row: Row) -> list[str]:
        """Return in what a run is unlike all that were measured, see `Encoder.beyond`."""
        name = self._part(row)
        unseen = [] if name in (str(row["app"]), POOLED) else ["app"]
        return unseen + [n for n in self.parts[name].encoder.beyond(row) if n not in unseen]

    def predict(
        self,
        rows: Sequence[Row],
        cpus: Sequence[int],
        volumes: np.ndarray | None,
        host_classes: Sequence[str | None] | None = None,
    ) -> np.ndarray:
        """Return natural logarithms, shape (n, 3), of the targets in `TARGETS`' order.

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
        logs = np.empty((len(rows), len(_REGRESSED)))
        names = np.array([self._part(row) for row in rows], dtype=object)
        for name in dict.fromkeys(names):
            at = np.flatnonzero(names == name)
            part = self.parts[name]
            seen = None if volumes is None else volumes[at]
            logs[at] = part.regressor.predict(part.encoder.transform([rows[n] for n in at]), seen)
        hosts = host_classes or [None] * len(rows)
        ratio = [
            self.law.ratio(str(row["app"]), n, host)
            for row, n, host in zip(rows, cpus, hosts, strict=True)
        ]
        return np.column_stack([logs[:, 0], logs[:, 0] + np.log(ratio), logs[:, 1]])

    def _part(self, row: Row) -> str:
        """Name the part that answers; where the application was never seen, any does.

        `beyond` says so then. A fold may leave out all subjects that an application was run on.
        """
        app = str(row["app"])
        return next(name for name in (app, POOLED, *self.parts) if name in self.parts)

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``, each part into a folder of its own."""
        for name, part in self.parts.items():
            inside = folder / (name or "pooled")
            inside.mkdir(parents=True, exist_ok=True)
            part.regressor.save(inside)
        content = {
            "family": self.family,
            "params": self.params,
            "level": self.level,
            "encoders": {name: part.encoder.to_json() for name, part in self.parts.items()},
            "law": dict(self.law.ratios),
        }
        write_json(folder / "point_model.json", content)

    @classmethod
    def load(cls, folder: Path) -> PointModel:
        """Read what `save` wrote."""
        content: dict[str, Any] = read_json(folder / "point_model.json")
        chosen = family(content["family"])
        parts = {
            name: Part(Encoder.from_json(encoder), chosen.load(folder / (name or "pooled")))
            for name, encoder in content["encoders"].items()
        }
        return cls(
            content["family"],
            content["params"],
            content["level"],
            parts,
            SlowdownLaw(content["law"]),
        )


def fit(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    level: Level,
    seed: int,
) -> PointModel:
    """Fit a family on a training table.

    Parameters
    ----------
    table : DataFrame
        Completed runs, as `voxcast.features.table.build_table` makes them.
    volumes : ndarray or None, shape (n_runs, p, p, p)
        Small volume of each run, for a family that needs it.
    name : str
        Family.
    params : dict
        Its parameters.
    level : {"header", "volume"}
        Whether the voxels' characteristics may be used.
    seed : int
        Of everything random in the fit.
    """
    chosen = family(name)
    groups = {POOLED: np.arange(len(table))}
    if not chosen.needs_volume:
        apps = table["app"].to_numpy()
        groups = {str(app): np.flatnonzero(apps == app) for app in sorted(set(apps))}
    parts = {}
    for group, at in groups.items():
        part, rows = table.iloc[at], rows_of(table.iloc[at])
        encoder = Encoder.fit(rows, content=level == "volume", only=chosen.only(params))
        goal = np.log(part[list(_REGRESSED)].to_numpy(dtype=float))
        regressor = chosen.build(params, seed)
        seen = volumes[at] if chosen.needs_volume and volumes is not None else None
        parts[group] = Part(encoder, regressor.fit(encoder.transform(rows), goal, seen))
    law = SlowdownLaw.fit(
        table["app"].tolist(),
        table["cpus"].tolist(),
        table["host_class"].tolist(),
        table["runtime_s"].tolist(),
        table["cpu_s"].tolist(),
    )
    return PointModel(name, params, level, parts, law)


def predict_table(
    model: PointModel, table: pd.DataFrame, volumes: np.ndarray | None
) -> np.ndarray:
    """Return the logarithms that ``model`` predicts for the runs of a table, shape (n, 3)."""
    return model.predict(
        rows_of(table), table["cpus"].tolist(), volumes, table["host_class"].tolist()
    )


def actual_logs(table: pd.DataFrame) -> np.ndarray:
    """Return the logarithms of the measured targets, shape (n, 3)."""
    logs: np.ndarray = np.log(table[list(TARGETS)].to_numpy(dtype=float))
    return logs
