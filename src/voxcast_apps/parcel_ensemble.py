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
from voxcast.errors import ConfigError
from voxcast_apps import parcel_study
from voxcast_apps.arguments import Accepted, Arguments, application

if TYPE_CHECKING:
    from voxcast_apps.parcellation import FoldPredictions

_SHARED = (
    "images", "participants", "features", "pipeline", "target", "candidates", "folds",
    "fold_range",
)  # fmt: skip
DEFAULTS: dict[str, Any] = {
    **{name: parcel_study.DEFAULTS[name] for name in _SHARED},
    "parcels": "50,100,200",  # each size with `seeds` random parcellations is a member
    "seeds": 2,
    "ensemble": "stacked",
}
ENSEMBLES = ["voting", "grid", "stacked"]
ACCEPTED: Accepted = {
    "seeds": 1,
    "ensemble": ENSEMBLES,
    **{name: limit for name, limit in parcel_study.ACCEPTED.items() if name in _SHARED},
}
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
    kind = options.parameters["ensemble"]
    members = member_parcellations(options.parameters["parcels"], options.parameters["seeds"])
    fits = parcellation.Study(options, members)
    scores: list[dict[str, Any]] = []
    for fold, predictions in fits.fits(reuse=True):
        with phase("ensemble"):
            train, test = fits.targets[predictions[0].train], fits.targets[predictions[0].test]
            combined, chosen = combine(predictions, train, kind)
            total, *alone = [
                parcellation.r_squared(test, predicted, train)
                for predicted in (combined, *(member.outer for member in predictions))
            ]
        scores.append({"fold": fold, "r_squared": total, "members": alone, "chosen": chosen})
    fits.write(
        scores,
        ensemble=kind,
        members=[{"parcels": parcels, "seed": seed} for parcels, seed in members],
        r_squared_members=np.mean([score["members"] for score in scores], 0).tolist(),
    )


def member_parcellations(parcels: str, seeds: int) -> list[tuple[int, int]]:
    """Return number of regions and seed of each member.

    Raises
    ------
    ConfigError
        If the sizes are not numbers, or there are too many members.

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
    numbers, scale = list(range(len(members))), train_targets.std(0)
    if kind == "stacked":
        from sklearn.linear_model import RidgeCV

        stacked = [
            RidgeCV(RIDGE_ALPHAS)
            .fit(inner[:, :, output].T / scale[output], train_targets[:, output])
            .predict(outer[:, :, output].T / scale[output])
            for output in range(train_targets.shape[1])
        ]
        return np.stack(stacked, 1), numbers
    sizes = range(1 if kind == "grid" else len(members), len(members) + 1)
    combinations = [list(c) for size in sizes for c in itertools.combinations(numbers, size)]

    def error(chosen: list[int]) -> float:
        residuals = inner[chosen].mean(0) - train_targets
        return float(((residuals / scale) ** 2).mean())

    best = min(combinations, key=error)
    return outer[best].mean(0), best


main = application(
    "parcel_ensemble", __doc__, DEFAULTS, ensemble, accepted=ACCEPTED, image=False,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
