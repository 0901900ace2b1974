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
    """Number of trials, and whether the search stopped at the time budget."""

    trials: int = 0
    pruned: int = 0
    cut_short: bool = False


@dataclass(frozen=True)
class Leaderboard:
    """Families and ensembles, evaluated by cross-validation.

    Attributes
    ----------
    input_level : {"header", "volume"}
        Input level at which the families were tuned.
    params : dict
        Parameters by family and ensemble; see `voxcast.models.selection.recipes`.
    metrics : dict
        Metrics by input level, then by family and ensemble.
    out_of_fold : dict
        Out-of-fold predictions from which the metrics are computed.
    counts : dict of str to TrialCounts
        Counts by family.
    """

    input_level: InputLevel
    params: dict[str, Params]
    metrics: dict[InputLevel, dict[str, Metrics]]
    out_of_fold: dict[InputLevel, dict[str, OutOfFold]]
    counts: dict[str, TrialCounts]

    @property
    def tuned(self) -> dict[str, Params]:
        """The best parameters of each family, without ensembles."""
        return {name: params for name, params in self.params.items() if name in FAMILIES}

    @property
    def objectives(self) -> dict[str, float]:
        """The objective of each family and ensemble; the smallest is best."""
        return {name: m["objective"] for name, m in self.metrics[self.input_level].items()}

    @property
    def best(self) -> str:
        """Name with the smallest objective; ties go to single families, then to the first."""
        return _smallest(self.objectives)

    @property
    def best_family(self) -> str:
        """Single family with the smallest objective; comparisons call it ``grid``."""
        return _smallest({name: self.objectives[name] for name in self.tuned})

    def name_at(self, name: str, input_level: InputLevel) -> str:
        """Return ``name`` at the input level of tuning, and the best name at another level."""
        if input_level == self.input_level:
            return name
        return _smallest({n: m["objective"] for n, m in self.metrics[input_level].items()})

    @property
    def trials(self) -> int:
        """Number of trials over all families."""
        return sum(counts.trials for counts in self.counts.values())

    @property
    def cut_short(self) -> bool:
        """Whether a search stopped at the time budget."""
        return any(counts.cut_short for counts in self.counts.values())


def _smallest(objectives: dict[str, float]) -> str:
    names = sorted(objectives, key=lambda name: name not in FAMILIES)
    return min(names, key=lambda name: objectives[name])
