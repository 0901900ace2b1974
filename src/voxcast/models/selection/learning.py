"""The whole way from runs to a model: every family tuned, ensembles over them, the best chosen.

What is chosen follows from folds within the runs given; who judges it must hold runs back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from voxcast.models.families.zoo import family
from voxcast.models.forecaster import CalibratedModel, calibrate
from voxcast.models.point_model import PointModel
from voxcast.models.selection import recipes
from voxcast.models.selection.blends import (
    Weights,
    blend_params,
    out_of_fold,
    stacked_out_of_fold,
    stacked_weights,
    voting_weights,
)
from voxcast.models.selection.cross_validation import objective
from voxcast.models.selection.search import Search, tune

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from voxcast.models.families.zoo import Params
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.blends import Blend
    from voxcast.models.selection.cross_validation import OutOfFold, Validation

GRID, VOTING, STACKED = "grid", "voting", "stacked"
ENSEMBLES = (GRID, VOTING, STACKED)


@dataclass(frozen=True)
class Learned:
    """What tuning found.

    Attributes
    ----------
    searches : dict
        By family.
    found : dict of str to OutOfFold
        By family and ensemble.
    weights : dict of str to Weights
        Of each ensemble.
    objectives : dict of str to float
        By family and ensemble, smallest is best.
    """

    searches: dict[str, Search]
    found: dict[str, OutOfFold]
    weights: dict[str, Weights]
    objectives: dict[str, float]

    def params(self, name: str) -> Params:
        """Return the best parameters of a family, or the recipe of an ensemble."""
        if name in self.searches:
            return self.searches[name].params
        members = {member: own.params for member, own in self.searches.items()}
        return blend_params(members, self.weights[name])

    @property
    def best(self) -> str:
        """Who is chosen: the smallest objective; of equals a single family."""
        order = [*self.searches, *self.weights]
        return min(order, key=lambda name: (self.objectives[name], order.index(name)))

    @property
    def tuned(self) -> dict[str, Params]:
        """The best parameters of each family."""
        return {name: search.params for name, search in self.searches.items()}

    @property
    def trials(self) -> int:
        """How many sets of parameters were tried."""
        return sum(len(search.trials) for search in self.searches.values())

    @property
    def cut_short(self) -> bool:
        """Whether the clock ended a search."""
        return any(search.cut_short for search in self.searches.values())


def learn(
    validation: Validation,
    families: Sequence[str],
    *,
    trials: int,
    budget_s: float,
    on_family: Callable[[str], None] = lambda name: None,
) -> Learned:
    """Tune every family that the table allows, and blend them.

    Parameters
    ----------
    families : sequence of str
        One at least that is no baseline.
    trials : int
        At most so many a family.
    budget_s : float
        What one family leaves of its share, the next ones may use; each gets one trial anyhow.
    on_family : callable
        Called with the name of each family when its turn comes.
    """
    searches = {}
    for name, share_s in shares(families, len(validation.table), budget_s):
        on_family(name)
        searches[name] = tune(validation, name, trials=trials, budget_s=share_s)
    return blend_all(validation, searches)


def shares(families: Sequence[str], rows: int, budget_s: float) -> Iterator[tuple[str, float]]:
    """Give each family that a table of so many rows allows, with its share of the time left."""
    deadline = time.monotonic() + budget_s
    chosen = [name for name in families if rows <= (family(name).most_rows or rows)]
    for n, name in enumerate(chosen):
        yield name, (deadline - time.monotonic()) / (len(chosen) - n)


def blend_all(validation: Validation, searches: dict[str, Search]) -> Learned:
    """Make the ensembles of tuned families; nothing is fitted for it."""
    actual, targets = validation.actual(), validation.targets
    found = {name: search.out_of_fold for name, search in searches.items()}
    objectives = {name: objective(actual, own.logs, targets) for name, own in found.items()}
    single = min(objectives, key=lambda name: objectives[name])
    weights: dict[str, Weights] = {GRID: {single: (1.0,) * len(targets)}}
    if sum(not family(name).baseline for name in searches) > 1:
        weights[VOTING] = voting_weights(found, actual, targets)
        weights[STACKED] = stacked_weights(found, actual, targets)
    for name, own in weights.items():
        if name == STACKED:
            members = {member: found[member] for member in searches}
            found[name] = stacked_out_of_fold(members, actual, targets, validation.folds())
        else:
            found[name] = out_of_fold(found, own)
        objectives[name] = objective(actual, found[name].logs, targets)
    return Learned(searches, found, weights, objectives)


def fit_all(
    validation: Validation, learned: Learned, input_level: InputLevel = "volume"
) -> dict[str, PointModel | Blend]:
    """Fit every family with its best parameters on all runs, and blend them."""
    single: dict[str, PointModel] = {}
    fitted: dict[str, PointModel | Blend] = {}
    for name in (*learned.searches, *learned.weights):
        fitted[name] = model = fit_one(validation, learned, name, input_level, single)
        if isinstance(model, PointModel):
            single[name] = model
    return fitted


def fit_one(
    validation: Validation,
    learned: Learned,
    name: str,
    input_level: InputLevel = "volume",
    fitted: Mapping[str, PointModel] | None = None,
) -> PointModel | Blend:
    """Fit a family or an ensemble on all runs; no member that is ``fitted`` is fitted again."""
    own = validation
    return recipes.fit(
        own.table,
        own.volumes,
        name,
        learned.params(name),
        input_level,
        own.seed,
        own.targets,
        fitted,
    )


def calibrated(
    validation: Validation,
    learned: Learned,
    model: PointModel | Blend,
    name: str,
    factor: float,
    extrapolator: CalibratedModel | None,
) -> CalibratedModel:
    """Return a model with its bounds, and with the model that answers out of range."""
    said, censored = learned.found[name], validation.censored
    own = calibrate(model, validation.table, said, factor, censored)
    return replace(own, extrapolator=extrapolator)
