"""The leaderboard: recipes, their errors by cross-validation, their out-of-fold predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.models.families.family import FAMILIES

if TYPE_CHECKING:
    import numpy as np

    from voxcast.models.families.family import Params
    from voxcast.models.out_of_fold import Metrics
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
        Predicted logarithms, (n_runs, targets), from which the metrics are computed.
    chosen : dict of str to str
        Family or ensemble of each input level, see
        `voxcast.models.selection.family_choice.choose_family`.
    counts : dict of str to TrialCounts
        Counts by family.
    """

    input_level: InputLevel
    params: dict[str, Params]
    metrics: dict[InputLevel, dict[str, Metrics]]
    out_of_fold: dict[InputLevel, dict[str, np.ndarray]]
    counts: dict[str, TrialCounts]
    chosen: dict[InputLevel, str]

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
        """The chosen family or ensemble at the input level of tuning."""
        return self.chosen[self.input_level]

    @property
    def best_family(self) -> str:
        """Single family with the smallest objective; comparisons call it ``grid``."""
        return min(self.tuned, key=self.objectives.__getitem__)

    def name_at(self, name: str, input_level: InputLevel) -> str:
        """Return ``name`` at the input level of tuning, and the chosen name at another level."""
        return name if input_level == self.input_level else self.chosen[input_level]

    @property
    def trials(self) -> int:
        """Number of trials over all families."""
        return sum(counts.trials for counts in self.counts.values())

    @property
    def cut_short(self) -> bool:
        """Whether a search stopped at the time budget."""
        return any(counts.cut_short for counts in self.counts.values())
