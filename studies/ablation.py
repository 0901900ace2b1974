"""Study: the value of each kind of information, by leaving it out.

The kinds follow HARP's three axes: the input (constant, voxel count, header, contents, raw
voxels), the hardware (allocation) and the application's parameters. All variants are
judged on the same outer folds over subjects, and nested: families, parameters and blend weights
are chosen by folds within the training runs of each. Differences between variants are paired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fold_predictions import pooled, voxcast_predictions
from voxcast.evaluation.contenders import TRIALS
from voxcast.evaluation.protocols import split
from voxcast.evaluation.recorded_table import of_app
from voxcast.evaluation.scoring import errors, paired
from voxcast.features.rows import CONTENT, FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pandas as pd

    from voxcast.evaluation.protocols import Fold
    from voxcast.models.selection.cross_validation import FoldCache

FOLDS = 5
TABULAR = ("ridge", "extra_trees", "boosted", "gaussian_process")
NETWORK = "cnn"
HARDWARE, PARAMETERS = ("allocation.",), ("parameter.",)
# Each other one is compared with the first of these that there is.
REFERENCES = ("header + content", "all")
COMPARED = ("cpu_s", "peak_rss_bytes")


def study(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    trials: int = TRIALS,
    cache: FoldCache,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application and variant, errors and differences from a reference.

    Parameters
    ----------
    table : DataFrame
        See `voxcast.evaluation.recorded_table.recorded_table`.
    volumes : ndarray or None, shape (n_runs,)
        Small volume of each run; ignored for runs without an image. None excludes the network.

    Returns
    -------
    dict
        By application, variant and target the errors of `voxcast.evaluation.scoring.errors`. For
        `COMPARED` there is ``against``, the name of the reference with which the variant is
        compared, and ``difference``, see `voxcast.evaluation.scoring.paired`.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        of_this_app = ((table["app"] == app) & (table["scale"] == FULL)).to_numpy()
        runs = of_app(table, app, FULL)
        has_image = "header.megavoxels" in runs
        app_volumes = volumes[of_this_app] if has_image and volumes is not None else None
        outer = split(runs, "subject", folds=folds, seed=seed).folds
        predictions: dict[str, pd.DataFrame] = {}
        variants = _variants(runs, has_image, app_volumes is not None)
        for name, (columns, families) in variants.items():
            on_step(f"{app}: {name}")
            predictions[name] = pooled(
                _of_fold(columns, app_volumes, fold, families, trials, seed, cache)
                for fold in outer
            )
        results[app] = _scores(predictions)
    return results


def _variants(
    runs: pd.DataFrame, has_image: bool, network: bool
) -> dict[str, tuple[pd.DataFrame, tuple[str, ...]]]:
    """Return the table and the families of each variant."""

    def without(*prefixes: str) -> pd.DataFrame:
        return runs[[name for name in runs if not str(name).startswith(prefixes)]]

    variants = {"constant": (runs, ("median",)), "all": (runs, TABULAR)}
    if has_image:
        variants |= {
            "voxels": (runs, ("voxels",)),
            "header": (without(CONTENT), TABULAR),
            "header + content": (runs, TABULAR),
        }
        del variants["all"]
    if network:
        variants |= {
            "header + network": (without(CONTENT), (NETWORK,)),
            "all": (runs, (*TABULAR, NETWORK)),
        }
    if runs["cpus"].nunique() > 1:
        variants["without hardware"] = without(*HARDWARE), TABULAR
    if runs["parameters_json"].nunique() > 1:
        variants["without parameters"] = without(*PARAMETERS), TABULAR
    return variants


def _of_fold(
    runs: pd.DataFrame,
    volumes: np.ndarray | None,
    fold: Fold,
    families: Sequence[str],
    trials: int,
    seed: int,
    cache: FoldCache,
) -> pd.DataFrame:
    """Predict the test runs of an outer fold."""
    return voxcast_predictions(
        runs.iloc[fold.train],
        runs.iloc[fold.test],
        families=families,
        trials=trials,
        seed=seed,
        volumes=None if volumes is None else (volumes[fold.train], volumes[fold.test]),
        cache=cache,
    )


def _scores(predictions: dict[str, pd.DataFrame]) -> dict[str, Any]:
    reference = next(name for name in REFERENCES if name in predictions)
    scores = {name: errors(table) for name, table in predictions.items()}
    for name, table in predictions.items():
        for target in COMPARED if name != reference else ():
            difference = paired(predictions[reference], table, target)
            scores[name][target] |= {"against": reference, "difference": difference}
    return scores
