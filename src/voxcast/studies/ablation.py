"""Study: the value of each kind of information, by leaving it out.

The kinds follow HARP's three axes: the input (constant, voxel count, header, contents, raw
voxels), the hardware (allocation and machine) and the application's parameters. All variants are
evaluated by the same folds over subjects, for several seeds; errors are averaged by subject first.

The cross-validation is not nested: parameters and blend weights are tuned on the folds that also
give the error. The error is therefore slightly optimistic, most for the variants with the most
families. It compares variants; it does not estimate the error on new subjects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import CONTENT
from voxcast.laws.intervals import clustered_mean
from voxcast.models.families.family import FAMILIES
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import learn
from voxcast.records import TARGETS
from voxcast.studies.recorded_table import FULL, of_app
from voxcast.studies.scoring import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from voxcast.models.out_of_fold import OutOfFold
    from voxcast.models.selection.fold_cache import FoldCache

SEEDS = 5
FOLDS = 5
TABULAR = ("ridge", "additive", "extra_trees", "boosting", "gaussian_process")
NETWORK = "cnn"
HARDWARE, PARAMETERS = ("allocation.", "host."), ("parameter.",)
CPU, MEMORY = TARGETS.index("cpu_s"), TARGETS.index("peak_rss_bytes")


def study(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    *,
    seeds: int = SEEDS,
    trials: int = 4,
    cache: FoldCache,
    on_step: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, by application and variant, the mean error with its interval.

    Parameters
    ----------
    table : DataFrame
        Runs of one batch, see `voxcast.studies.recorded_table.recorded_table`.
    volumes : ndarray or None, shape (n_runs, p, p, p)
        Small volume of each run; ignored for runs without an image. None excludes the network.
    """
    results: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        of_this_app = ((table["app"] == app) & (table["scale"] == FULL)).to_numpy()
        runs = of_app(table, app, FULL)
        has_image = "header.megavoxels" in runs
        app_volumes = volumes[of_this_app] if has_image and volumes is not None else None
        results[app] = {}
        variants = _variants(runs, has_image, app_volumes is not None)
        for name, (columns, families) in variants.items():
            on_step(f"{app}: {name}")
            out_of_fold_by_seed = [
                _out_of_fold(columns, app_volumes, families, seed, trials, cache)
                for seed in range(seeds)
            ]
            results[app][name] = _errors(runs, out_of_fold_by_seed)
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
            "network alone": (without(CONTENT), (f"{NETWORK}:grid",)),
            "header + network": (without(CONTENT), (f"{NETWORK}:all",)),
            "all": (runs, (*TABULAR, f"{NETWORK}:all")),
        }
    if runs["cpus"].nunique() > 1:
        variants["without hardware"] = without(*HARDWARE), TABULAR
    if runs["parameters_json"].nunique() > 1:
        variants["without parameters"] = without(*PARAMETERS), TABULAR
    return variants


def _out_of_fold(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    families: Sequence[str],
    seed: int,
    trials: int,
    cache: FoldCache,
) -> OutOfFold:
    """Return the predictions of the best of families, or of their stack; networks are not tuned.

    A family is given as ``NAME``, or as ``NAME:COLUMNS`` for a network.
    """
    validation = Validation(table, volumes, FOLDS, seed, cache=cache)
    names_and_columns = [family.split(":") for family in families]
    fixed_params = {
        name: {**FAMILIES[name].defaults, "columns": columns[0]}
        for name, *columns in names_and_columns
        if columns
    }
    names = [name for name, *_ in names_and_columns]
    leaderboard = learn(validation, names, trials=trials, fixed_params=fixed_params)
    return leaderboard.out_of_fold[leaderboard.input_level][leaderboard.best]


def _errors(runs: pd.DataFrame, out_of_fold_by_seed: Sequence[OutOfFold]) -> dict[str, Any]:
    errors = {}
    for target, k in (("cpu_s", CPU), ("peak_rss_bytes", MEMORY)):
        actual = runs[target].to_numpy(dtype=float)
        shares = [
            100 * np.abs(np.exp(out_of_fold.log_predictions[:, k]) - actual) / actual
            for out_of_fold in out_of_fold_by_seed
        ]
        mean = clustered_mean(np.mean(shares, axis=0), runs["subject"].tolist())
        errors[target] = {
            "mape": mean.value,
            "mape_interval": bounds_of(mean),
            "between_seeds": float(np.std([share.mean() for share in shares])),
        }
    return errors
