"""A fit of a parcel study: one parcellation, pipeline and target.

Volumes of an image set are cut into regions by a random parcellation, each participant is reduced
to region means, and a pipeline with a hyper-parameter search predicts a target in folds, after the
study whose hundreds of thousands of fits were submitted as a pool of work. Run as
``python -m voxcast_apps.parcel_study --out DIR``; scores are in ``result.json``. No image decides
its time: parcels, features, pipeline and target do.
"""

from __future__ import annotations

import sys
from typing import Any

from voxcast.apps.phase_log import phase, started
from voxcast_apps.arguments import Accepted, Arguments, application

DEFAULTS: dict[str, Any] = {
    "images": "data/campaigns/parcel_study/images",
    "participants": 48,
    "parcels": 100,
    "seed": 1,
    "features": "means",
    "pipeline": "elastic_net",
    "target": "gamma",
    "candidates": 3,
    "folds": 5,
    "fold_range": "",  # folds to fit, such as 0:2; empty for all
    "reuse_folds": False,  # without it the time is the time of all the work
}


ACCEPTED: Accepted = {
    "pipeline": ["elastic_net", "support_vectors", "boosting"],
    "features": ["means", "pairs"],
    "participants": 1,
    "parcels": (2, 5000),
    "seed": 0,
    "candidates": (1, 12),
    "folds": 2,
}


def study(options: Arguments) -> None:
    """Fit and score the folds, log each step as a phase, and write ``result.json``.

    It has scores by fold, predictions of participants out of fold, and the use of the cache.
    `r_squared` is over the mean of the training participants, averaged over the outputs.

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
    fits = parcellation.Study(options, [(parameters["parcels"], parameters["seed"])])
    scores: list[dict[str, Any]] = []
    predictions: dict[str, list[float]] = {}
    for fold, (predicted,) in fits.fits(reuse=parameters["reuse_folds"]):
        test, train = fits.targets[predicted.test], fits.targets[predicted.train]
        score = parcellation.r_squared(test, predicted.outer, train)
        scores.append({"fold": fold, "r_squared": score})
        for row, values in zip(predicted.test, predicted.outer, strict=True):
            predictions[fits.participants[row].label] = values.tolist()
    fits.write(
        scores, out_of_fold=predictions, outputs=fits.targets.shape[1], threads=options.threads
    )


main = application("parcel_study", __doc__, DEFAULTS, study, accepted=ACCEPTED, image=False)

if __name__ == "__main__":
    sys.exit(main())
