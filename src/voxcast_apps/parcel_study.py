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
from voxcast.content_cache import cache_of_environment
from voxcast.errors import ConfigError
from voxcast.files import write_json
from voxcast_apps.arguments import Arguments, application

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
        import numpy as np

        from voxcast_apps import parcellation
    parameters = options.parameters
    folds = fold_numbers(parameters["fold_range"], parameters["folds"])
    cache = cache_of_environment()
    with phase("regions"):
        participants, targets = parcellation.fitted_data(parameters)
        parcels, seed = parameters["parcels"], parameters["seed"]
        regions = parcellation.region_means(participants, parcels, seed, cache)
    scores: list[dict[str, Any]] = []
    predictions: dict[str, list[float]] = {}
    for fold in folds:
        with phase("fold"):
            predicted = parcellation.fold_predictions(
                regions, targets, parameters, fold, options.threads, cache,
                reuse=parameters["reuse_folds"],
            )  # fmt: skip
        test, train = targets[predicted.test], targets[predicted.train]
        score = parcellation.r_squared(test, predicted.outer, train)
        scores.append({"fold": fold, "r_squared": score})
        for row, values in zip(predicted.test, predicted.outer, strict=True):
            predictions[participants[row].label] = values.tolist()
    with phase("write"):
        result = {
            "folds": scores,
            "r_squared": float(np.mean([score["r_squared"] for score in scores])),
            "outputs": targets.shape[1],
            "out_of_fold": predictions,
            "threads": options.threads,
            "volumes_read": regions.loads,
            "cache": None if cache is None else cache.events(),
        }
        write_json(options.out / "result.json", result)


def fold_numbers(fold_range: str, folds: int) -> range:
    """Return the folds that ``fold_range`` chooses.

    Raises
    ------
    ConfigError
        If it is not ``FIRST:END`` within the folds.

    Examples
    --------
    >>> fold_numbers("", 5), fold_numbers("3:5", 5)
    (range(0, 5), range(3, 5))
    """
    if not fold_range:
        return range(folds)
    first, _, end = fold_range.partition(":")
    if not (first.isdecimal() and end.isdecimal() and 0 <= int(first) < int(end) <= folds):
        then = f"write it as 0:2, at most 0:{folds}; empty for all"
        raise ConfigError(f"not a range of folds: {fold_range!r}", "fold_range", then)
    return range(int(first), int(end))


main = application("parcel_study", __doc__, DEFAULTS, study, image=False)

if __name__ == "__main__":
    sys.exit(main())
