"""What tuning found, family by family, with the out-of-fold predictions that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.files import atomic_path, read_json, write_json
from voxcast.models.families.zoo import FAMILIES, family
from voxcast.models.selection.cross_validation import OutOfFold, Validation, error_metrics
from voxcast.models.selection.promotion_rule import best_family
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.models.families.zoo import Params
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.learning import Learned

_COLUMNS = [f"log_{target}" for target in TARGETS]
_SPREADS = [f"{side}_{target}" for target in TARGETS for side in ("down", "up")]


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
        One row a run, family and input level: ``cell_key family input_level log_TARGET…
        down_TARGET up_TARGET…``.
    """

    families: dict[str, dict[str, Any]]
    header_family: str
    header_metrics: dict[str, float]
    out_of_fold: pd.DataFrame

    @classmethod
    def of(cls, validation: Validation, learned: Learned) -> Leaderboard:
        """Write down who does how well, and find out who does best without the voxels."""
        table = validation.table
        parts = [_frame(table, name, "volume", own) for name, own in learned.found.items()]
        headers: dict[str, dict[str, float]] = {}
        for tuned in learned.searches.values():
            if family(tuned.family).needs_volume:
                continue
            logs = validation.out_of_fold(tuned.family, tuned.params, "header")
            headers[tuned.family] = error_metrics(table, logs.logs)
            parts.append(_frame(table, tuned.family, "header", logs))
        best = best_family({name: metrics["objective"] for name, metrics in headers.items()})
        families: dict[str, dict[str, Any]] = {}
        for name, found in learned.found.items():
            search = learned.searches.get(name)
            trials = () if search is None else search.trials
            families[name] = {
                "params": learned.params(name),
                "metrics": error_metrics(table, found.logs),
                "trials": len(trials),
                "pruned": sum(trial.state == "pruned" for trial in trials),
                "cut_short": search is not None and search.cut_short,
            }
        return cls(families, best, headers[best], pd.concat(parts, ignore_index=True))

    @property
    def tuned(self) -> dict[str, Params]:
        """The best parameters of each family, without the ensembles."""
        return {name: self.params(name) for name in self.families if name in FAMILIES}

    @property
    def best(self) -> str:
        """The best family by cross-validation, voxels known; of equals a single one."""
        order = sorted(self.families, key=lambda name: name not in FAMILIES)
        return best_family({n: self.families[n]["metrics"]["objective"] for n in order})

    def params(self, name: str) -> Params:
        """Return a family's best parameters."""
        params: Params = self.families[name]["params"]
        return params

    def logs(self, table: pd.DataFrame, name: str, input_level: InputLevel) -> OutOfFold:
        """Return a family's out-of-fold predictions in the order of ``table``."""
        own = self.out_of_fold.query("family == @name and input_level == @input_level")
        own = own.set_index("cell_key").loc[table["cell_key"]]
        spread = own[_SPREADS].to_numpy().reshape(len(own), len(TARGETS), 2)
        return OutOfFold(own[_COLUMNS].to_numpy(), spread)

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
            {"family": name, "input_level": "volume"}
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


def _frame(
    table: pd.DataFrame, name: str, input_level: InputLevel, found: OutOfFold
) -> pd.DataFrame:
    spread = found.spread.reshape(len(table), -1)
    frame = pd.DataFrame(np.column_stack([found.logs, spread]), columns=[*_COLUMNS, *_SPREADS])
    frame.insert(0, "cell_key", table["cell_key"].to_numpy())
    frame.insert(1, "family", name)
    frame.insert(2, "input_level", input_level)
    return frame
