"""The leaderboard: recipes, their errors by cross-validation, their out-of-fold predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.models.families.family import FAMILIES

if TYPE_CHECKING:
    from voxcast.models.families.family import Params
    from voxcast.models.out_of_fold import Metrics, OutOfFold
    from voxcast.models.point_model import InputLevel

GRID, VOTING, STACKED = "grid", "voting", "stacked"


@dataclass(frozen=True)
class TrialCounts:
    """How many sets of parameters were tried, and whether the clock ended the search."""

    trials: int = 0
    pruned: int = 0
    cut_short: bool = False


@dataclass(frozen=True)
class Leaderboard:
    """Families and ensembles, judged by cross-validation.

    Attributes
    ----------
    input_level : {"header", "volume"}
        At which the families were tuned.
    params : dict
        By family and ensemble; an ensemble's are its recipe.
    metrics : dict
        By input level, then by family and ensemble.
    out_of_fold : dict
        The predictions that the metrics come from.
    counts : dict of str to TrialCounts
        By family.
    """

    input_level: InputLevel
    params: dict[str, Params]
    metrics: dict[InputLevel, dict[str, Metrics]]
    out_of_fold: dict[InputLevel, dict[str, OutOfFold]]
    counts: dict[str, TrialCounts]

    @property
    def tuned(self) -> dict[str, Params]:
        """The best parameters of each family, ensembles apart."""
        return {name: params for name, params in self.params.items() if name in FAMILIES}

    @property
    def objectives(self) -> dict[str, float]:
        """The objective of each family and ensemble; the smallest is best."""
        return {name: m["objective"] for name, m in self.metrics[self.input_level].items()}

    @property
    def best(self) -> str:
        """The smallest objective; of equals a single family, and of these the first."""
        return _smallest(self.objectives)

    @property
    def best_family(self) -> str:
        """The smallest objective among single families; in comparisons it stands as ``grid``."""
        return _smallest({name: self.objectives[name] for name in self.tuned})

    def name_at(self, name: str, input_level: InputLevel) -> str:
        """Return ``name`` at the level of tuning, and at another the best there."""
        if input_level == self.input_level:
            return name
        return _smallest({n: m["objective"] for n, m in self.metrics[input_level].items()})

    @property
    def trials(self) -> int:
        """How many sets of parameters were tried."""
        return sum(counts.trials for counts in self.counts.values())

    @property
    def cut_short(self) -> bool:
        """Whether the clock ended a search."""
        return any(counts.cut_short for counts in self.counts.values())


def _smallest(objectives: dict[str, float]) -> str:
    names = sorted(objectives, key=lambda name: name not in FAMILIES)
    return min(names, key=lambda name: objectives[name])
