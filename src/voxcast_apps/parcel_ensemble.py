"""Ensembles over parcellations: voting, grid and stacked.

The members are fits of `voxcast_apps.parcel_study`. Members with predictions in the cache are not
fitted again. An ensemble learns within each outer fold from predictions of the training
participants out of inner fold: no participant is scored by a model that has seen it. Run as
``python -m voxcast_apps.parcel_ensemble --out DIR``.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.apps.phase_log import phase, started
from voxcast.content_cache import cache_of_environment
from voxcast.errors import ConfigError
from voxcast.files import write_json
from voxcast_apps.arguments import Arguments, application, check
from voxcast_apps.parcel_study import DEFAULTS as STUDY
from voxcast_apps.parcel_study import fold_numbers

if TYPE_CHECKING:
    from voxcast_apps.parcellation import FoldPredictions

DEFAULTS: dict[str, Any] = {
    **{name: STUDY[name] for name in STUDY if name not in ("parcels", "seed", "reuse_folds")},
    "parcels": "50,100,200",  # each size with `seeds` random parcellations is a member
    "seeds": 2,
    "ensemble": "stacked",
}
ENSEMBLES = ("voting", "grid", "stacked")
MOST_MEMBERS = 10  # a grid has 2^members - 1 combinations
RIDGE_ALPHAS = (0.01, 0.1, 1.0, 10.0, 100.0)


def ensemble(options: Arguments) -> None:
    """Combine parcellations, score each fold, and write ``result.json``.

    It has R² of the ensemble and of each member by fold, the combination that a grid chose in each
    fold, and the use of the cache.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    ImageError
        If the image set lacks participants, or a volume cannot be used.
    """
    started()
    with phase("import"):
        from voxcast_apps import parcellation
    parameters = options.parameters
    members = member_parcellations(parameters["parcels"], parameters["seeds"])
    check(parameters, {}, {"ensemble": ENSEMBLES})
    folds = fold_numbers(parameters["fold_range"], parameters["folds"])
    cache = cache_of_environment()
    with phase("regions"):
        participants, targets = parcellation.fitted_data(parameters)
        regions = [parcellation.region_means(participants, *member, cache) for member in members]
    scores: list[dict[str, Any]] = []
    for fold in folds:
        with phase("fold"):
            predictions = [
                parcellation.fold_predictions(
                    member, targets, parameters, fold, options.threads, cache, reuse=True
                )
                for member in regions
            ]
        with phase("ensemble"):
            train, test = targets[predictions[0].train], targets[predictions[0].test]
            combined, chosen = combine(predictions, train, parameters["ensemble"])
            score = [
                parcellation.r_squared(test, predicted, train)
                for predicted in (combined, *(member.outer for member in predictions))
            ]
        scores.append(
            {"fold": fold, "r_squared": score[0], "members": score[1:], "chosen": chosen}
        )
    with phase("write"):
        result = {
            "ensemble": parameters["ensemble"],
            "members": [{"parcels": parcels, "seed": seed} for parcels, seed in members],
            "folds": scores,
            "r_squared": float(np.mean([score["r_squared"] for score in scores])),
            "r_squared_members": np.mean([score["members"] for score in scores], 0).tolist(),
            "volumes_read": sum(member.loads for member in regions),
            "cache": None if cache is None else cache.events(),
        }
        write_json(options.out / "result.json", result)


def member_parcellations(parcels: str, seeds: int) -> list[tuple[int, int]]:
    """Return number of regions and seed of each member.

    Raises
    ------
    ConfigError
        If the sizes are no numbers, or there are too many members.

    Examples
    --------
    >>> member_parcellations("50,100", 2)
    [(50, 1), (50, 2), (100, 1), (100, 2)]
    """
    try:
        sizes = [int(size) for size in parcels.split(",")]
    except ValueError:
        then = "write it as 50,100,200"
        raise ConfigError(f"no list of numbers: {parcels!r}", "parcels", then) from None
    members = list(itertools.product(sizes, range(1, seeds + 1)))
    if not 1 <= len(set(members)) == len(members) <= MOST_MEMBERS:
        reason = f"needs 1 to {MOST_MEMBERS} different parcellations, not {len(members)}"
        raise ConfigError(reason, "parcels, seeds")
    return members


def combine(
    members: list[FoldPredictions], train_targets: np.ndarray, kind: str
) -> tuple[np.ndarray, list[int]]:
    """Return predictions of an outer fold's test participants, and the members that were used.

    Parameters
    ----------
    members : list of FoldPredictions
        Of one fold.
    train_targets : ndarray
        Of its training participants, participants x outputs.
    kind : str
        ``voting`` is the mean of all members; ``grid`` the mean of the combination of members
        with the least squared error out of inner fold; ``stacked`` a ridge regression (Wolpert
        1992, Stacked generalization) on predictions out of inner fold, of each output.
    """
    inner = np.stack([member.inner for member in members])
    outer = np.stack([member.outer for member in members])
    numbers = list(range(len(members)))
    if kind == "voting":
        return outer.mean(0), numbers
    scale = train_targets.std(0)
    if kind == "grid":
        sizes = range(1, len(members) + 1)
        combinations = [list(c) for size in sizes for c in itertools.combinations(numbers, size)]

        def error(chosen: list[int]) -> float:
            residuals = inner[chosen].mean(0) - train_targets
            return float(((residuals / scale) ** 2).mean())

        best = min(combinations, key=error)
        return outer[best].mean(0), best
    from sklearn.linear_model import RidgeCV

    stacked = [
        RidgeCV(RIDGE_ALPHAS)
        .fit(inner[:, :, output].T / scale[output], train_targets[:, output])
        .predict(outer[:, :, output].T / scale[output])
        for output in range(train_targets.shape[1])
    ]
    return np.stack(stacked, 1), numbers


main = application("parcel_ensemble", __doc__, DEFAULTS, ensemble, image=False)

if __name__ == "__main__":
    sys.exit(main())
