"""Nested cross-validation: parameters and family are chosen by folds within the training runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voxcast.evaluation import out_of_sample
from voxcast.models.point_model import InputLevel, PointModel, predict_table
from voxcast.models.selection import recipes
from voxcast.models.selection.cross_validation import FoldCache, Validation
from voxcast.models.selection.learning import learn
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.models.families.family import Params

CHOSEN = "chosen"  # the family or ensemble that the inner folds choose
LEVEL: InputLevel = "volume"


@dataclass(frozen=True)
class Learner:
    """How models are learned from the training runs of an outer fold.

    Attributes
    ----------
    families : tuple of str
        Names of families.
    fixed_params : mapping of str to Params
        Parameters of families that are not tuned.
    trials : int
        Trials of each other family.
    seed : int
        Seed of the inner folds and of the fits.
    cache : FoldCache
        Cached predictions of inner folds.
    """

    families: tuple[str, ...]
    fixed_params: Mapping[str, Params] = field(default_factory=dict)
    trials: int = out_of_sample.TRIALS
    seed: int = 0
    cache: FoldCache = field(default_factory=FoldCache)

    def predictions(
        self,
        train: pd.DataFrame,
        test: pd.DataFrame,
        volumes: tuple[np.ndarray, np.ndarray] | None = None,
        *,
        every_family: bool = False,
    ) -> dict[str, pd.DataFrame]:
        """Learn from ``train`` and return the predicted medians of ``test`` by name.

        Parameters
        ----------
        train, test : DataFrame
            Runs of one application.
        volumes : (train, test), optional
            Small volumes, for the network.
        every_family : bool
            Whether each family and ensemble is returned beside `CHOSEN`.
        """
        validation = Validation(
            train.reset_index(drop=True),
            None if volumes is None else volumes[0],
            out_of_sample.INNER_FOLDS,
            self.seed,
            cache=self.cache,
        )
        params_by_name, best = self._params_and_choice(validation)
        names = list(params_by_name) if every_family else [best]
        fitted: dict[str, PointModel] = {}
        by_name = {}
        for name in names:  # families come before the ensembles of them
            model = recipes.fit(validation, name, params_by_name[name], LEVEL, fitted)
            if len(model.members) == 1:
                fitted[name] = model
            logs = predict_table(model, test, None if volumes is None else volumes[1])
            medians = {f"{target}_median": np.exp(logs[:, k]) for k, target in enumerate(TARGETS)}
            by_name[name] = out_of_sample.run_columns(test).assign(**medians, chosen=best)
        return by_name | {CHOSEN: by_name[best]}

    def _params_and_choice(self, validation: Validation) -> tuple[dict[str, Params], str]:
        """Return the parameters of families and ensembles by name, and the chosen name."""
        if len(self.families) == 1 and self.families[0] in self.fixed_params:
            return dict(self.fixed_params), self.families[0]  # nothing is to be chosen
        leaderboard = learn(
            validation, self.families, trials=self.trials, fixed_params=self.fixed_params
        )
        return leaderboard.params, leaderboard.best
