"""What tuning found, family by family, with the out-of-fold predictions that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.files import atomic_path, read_json, write_json
from voxcast.models.families import family
from voxcast.models.selection import best_family
from voxcast.models.validation import Validation, error_metrics
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.models.families import Params
    from voxcast.models.point_model import Level
    from voxcast.models.search import Search

_COLUMNS = [f"log_{target}" for target in TARGETS]


@dataclass(frozen=True)
class Leaderboard:
    """The best parameters of every family, and the family that answers on headers alone.

    Attributes
    ----------
    families : dict
        ``params``, ``metrics``, ``trials`` and ``cut_short`` by family, voxels known.
    header_family : str
        The best family by cross-validation without the voxels' characteristics.
    header_metrics : dict
        Its metrics.
    out_of_fold : DataFrame
        One row a run, family and level: ``cell_key family level log_TARGET…``.
    """

    families: dict[str, dict[str, Any]]
    header_family: str
    header_metrics: dict[str, float]
    out_of_fold: pd.DataFrame

    @classmethod
    def of(cls, validation: Validation, searches: Sequence[Search]) -> Leaderboard:
        """Join the searches, and find out who does best without the voxels."""
        table = validation.table
        parts = [_frame(table, s.family, "volume", s.out_of_fold) for s in searches]
        headers: dict[str, dict[str, float]] = {}
        for search in searches:
            if family(search.family).needs_volume:
                continue
            logs = validation.out_of_fold(search.family, search.params, "header")
            headers[search.family] = error_metrics(table, logs)
            parts.append(_frame(table, search.family, "header", logs))
        best = best_family({name: metrics["objective"] for name, metrics in headers.items()})
        families = {
            s.family: {
                "params": s.params,
                "metrics": s.metrics,
                "trials": len(s.trials),
                "pruned": sum(t.state == "pruned" for t in s.trials),
                "cut_short": s.cut_short,
            }
            for s in searches
        }
        return cls(families, best, headers[best], pd.concat(parts, ignore_index=True))

    @property
    def best(self) -> str:
        """The best family by cross-validation, voxels known."""
        return best_family(
            {name: found["metrics"]["objective"] for name, found in self.families.items()}
        )

    def params(self, name: str) -> Params:
        """Return a family's best parameters."""
        params: Params = self.families[name]["params"]
        return params

    def logs(self, table: pd.DataFrame, name: str, level: Level) -> np.ndarray:
        """Return a family's out-of-fold predictions in the order of ``table``, shape (n, 3)."""
        own = self.out_of_fold.query("family == @name and level == @level")
        found: np.ndarray = own.set_index("cell_key").loc[table["cell_key"], _COLUMNS].to_numpy()
        return found

    def save(self, data: Path, results: Path) -> None:
        """Write ``best.json`` and ``out_of_fold.parquet``, and the table that people read."""
        content = {
            "families": self.families,
            "header_family": self.header_family,
            "header_metrics": self.header_metrics,
        }
        write_json(data / "best.json", content)
        with atomic_path(data / "out_of_fold.parquet") as partial:
            self.out_of_fold.to_parquet(partial, index=False)
        rows = [
            {"family": name, "level": "volume"}
            | {k: found[k] for k in ("trials", "pruned", "cut_short")}
            | {f"cv_{k.replace('/', '_')}": v for k, v in found["metrics"].items()}
            for name, found in self.families.items()
        ]
        with atomic_path(results / "leaderboard.csv") as partial:
            board = pd.DataFrame(rows).sort_values("cv_objective", kind="stable")
            board.to_csv(partial, index=False, float_format="%.6g")

    @classmethod
    def load(cls, data: Path) -> Leaderboard:
        """Read what `save` wrote under ``data``."""
        return cls(
            **read_json(data / "best.json"),
            out_of_fold=pd.read_parquet(data / "out_of_fold.parquet"),
        )


def _frame(table: pd.DataFrame, name: str, level: Level, logs: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(logs, columns=_COLUMNS)
    frame.insert(0, "cell_key", table["cell_key"].to_numpy())
    frame.insert(1, "family", name)
    frame.insert(2, "level", level)
    return frame
