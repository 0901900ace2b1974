"""One model of all targets: columns, a regressor of CPU time and memory, and the slowdown law."""

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


@dataclass(frozen=True)
class PointModel:
    """A fitted model that predicts one value per target; see `fit`."""

    family: str
    params: Params
    level: Level
    encoder: Encoder
    regressor: Regressor
    law: SlowdownLaw

    @property
    def needs_volume(self) -> bool:
        """Whether it cannot answer without the small volume."""
        return family(self.family).needs_volume

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
        logs = self.regressor.predict(self.encoder.transform(rows), volumes)
        hosts = host_classes or [None] * len(rows)
        ratio = [
            self.law.ratio(str(row["app"]), n, host)
            for row, n, host in zip(rows, cpus, hosts, strict=True)
        ]
        return np.column_stack([logs[:, 0], logs[:, 0] + np.log(ratio), logs[:, 1]])

    def save(self, folder: Path) -> None:
        """Write the model into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.regressor.save(folder)
        content = {
            "family": self.family,
            "params": self.params,
            "level": self.level,
            "encoder": self.encoder.to_json(),
            "law": dict(self.law.ratios),
        }
        write_json(folder / "point_model.json", content)

    @classmethod
    def load(cls, folder: Path) -> PointModel:
        """Read what `save` wrote."""
        content: dict[str, Any] = read_json(folder / "point_model.json")
        return cls(
            content["family"],
            content["params"],
            content["level"],
            Encoder.from_json(content["encoder"]),
            family(content["family"]).load(folder),
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
    rows = rows_of(table)
    encoder = Encoder.fit(rows, content=level == "volume", only=chosen.only(params))
    goal = np.log(table[list(_REGRESSED)].to_numpy(dtype=float))
    regressor = chosen.build(params, seed)
    regressor.fit(encoder.transform(rows), goal, volumes if chosen.needs_volume else None)
    law = SlowdownLaw.fit(
        table["app"].tolist(),
        table["cpus"].tolist(),
        table["host_class"].tolist(),
        table["runtime_s"].tolist(),
        table["cpu_s"].tolist(),
    )
    return PointModel(name, params, level, encoder, regressor, law)


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
