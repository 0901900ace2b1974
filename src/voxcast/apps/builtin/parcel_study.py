"""A fit of a parcel study as a built-in application: one parcellation, pipeline and target.

Volumes of an image set are cut into regions by a random parcellation, each participant is reduced
to region means, and a pipeline with a hyper-parameter search predicts a target in folds. It is
after the study whose fits, hundreds of thousands of them, were submitted as a pool of work. Run as
``python -m voxcast.apps.builtin.parcel_study --out DIR``; scores are in ``result.json``. No image
decides its time: parcels, features, pipeline and target do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.builtin.arguments import parse
from voxcast.apps.phase_log import phase, started
from voxcast.content_cache import cache_of_environment
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    "fold_range": "",
    "reuse_folds": False,
}
RESULT_FILE = "result.json"


def study(out: Path, threads: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score the folds, log each step as a phase, and write ``result.json``.

    Parameters
    ----------
    out : Path
        Folder for ``result.json``; created if missing.
    threads : int
        Fits at a time.
    parameters : mapping
        As `DEFAULTS`. ``fold_range`` chooses folds, ``"0:2"``. With ``reuse_folds`` folds in the
        cache are not fitted again; without it the time is that of all the work.

    Returns
    -------
    dict
        The content of ``result.json``: scores by fold, participants out of fold, and the use of
        the cache. `r_squared` is over the mean of the training participants, averaged over the
        outputs of the target.

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
        import sklearn.ensemble
        import sklearn.svm  # noqa: F401

        from voxcast.apps.builtin import parcel_pipelines, parcel_regions
    folds = fold_numbers(parameters["fold_range"], parameters["folds"])
    cache = cache_of_environment()
    with phase("regions"):
        setting, participants, targets = parcel_regions.fitted_data(parameters)
        regions = parcel_regions.region_means(
            participants, parameters["parcels"], parameters["seed"], cache
        )
    scores: list[dict[str, Any]] = []
    predictions: dict[str, list[float]] = {}
    for fold in folds:
        with phase("fold"):
            predicted = parcel_pipelines.fold_predictions(
                regions.means, targets, setting, fold, threads, regions.content, cache,
                reuse=parameters["reuse_folds"],
            )  # fmt: skip
        scores.append({
            "fold": fold,
            "r_squared": parcel_pipelines.r_squared(
                targets[predicted.test], predicted.outer, targets[predicted.train]
            ),
        })  # fmt: skip
        predictions |= {
            participants[row].label: values.tolist()
            for row, values in zip(predicted.test, predicted.outer, strict=True)
        }
    with phase("write"):
        result = {
            "folds": scores,
            "r_squared": float(np.mean([score["r_squared"] for score in scores])),
            "outputs": targets.shape[1],
            "out_of_fold": predictions,
            "threads": threads,
            "volumes_read": regions.loads,
            "cache": None if cache is None else cache.events(),
        }
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / RESULT_FILE, result)
    return result


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


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    args = parse(argv, DEFAULTS, prog="parcel_study", description=__doc__, image=False)
    study(args.out, args.threads, args.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
