"""Study: what each kind of knowledge is worth, by leaving it out.

Along HARP's three axes: the input (constant, voxel count, header, contents, raw voxels), the
hardware (allocation and machine) and the application's parameters. Every way is asked by the same
folds over subjects, several times with other folds; errors are averaged by subject first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.features.rows import CONTENT
from voxcast.laws.intervals import clustered_mean
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import TARGETS
from voxcast.studies.judgement import bounds_of
from voxcast.studies.recorded_table import FULL, of_app

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from voxcast.models.selection.cross_validation import OutOfFold
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
    on_step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Return, by application and kind of knowledge, the mean error with its interval.

    Parameters
    ----------
    table : DataFrame
        Of one batch, see `voxcast.studies.recorded_table.recorded_table`.
    volumes : ndarray or None, shape (n_runs, p, p, p)
        Small volumes of the runs that have an image (others are ignored); None leaves the network
        out.
    """
    found: dict[str, Any] = {}
    for app in sorted(table["app"].unique()):
        at = ((table["app"] == app) & (table["scale"] == FULL)).to_numpy()
        own = of_app(table, app, FULL)
        image = "header.megavoxels" in own
        cubes = volumes[at] if image and volumes is not None else None
        found[app] = {}
        for name, (columns, families) in _ways(own, image, cubes is not None).items():
            on_step(f"{app}: {name}")
            said = [
                _out_of_fold(columns, cubes, families, seed, trials, cache)
                for seed in range(seeds)
            ]
            found[app][name] = _errors(own, said)
    return found


def _ways(
    own: pd.DataFrame, image: bool, network: bool
) -> dict[str, tuple[pd.DataFrame, tuple[str, ...]]]:
    def without(*prefixes: str) -> pd.DataFrame:
        return own[[name for name in own if not str(name).startswith(prefixes)]]

    ways = {"constant": (own, ("median",)), "all": (own, TABULAR)}
    if image:
        ways |= {
            "voxels": (own, ("voxels",)),
            "header": (without(CONTENT), TABULAR),
            "header + content": (own, TABULAR),
        }
        del ways["all"]
    if network:
        ways |= {
            "network alone": (without(CONTENT), (f"{NETWORK}:grid",)),
            "header + network": (without(CONTENT), (f"{NETWORK}:all",)),
            "all": (own, (*TABULAR, f"{NETWORK}:all")),
        }
    if own["cpus"].nunique() > 1:
        ways["without hardware"] = without(*HARDWARE), TABULAR
    if own["parameters_json"].nunique() > 1:
        ways["without parameters"] = without(*PARAMETERS), TABULAR
    return ways


def _out_of_fold(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    families: Sequence[str],
    seed: int,
    trials: int,
    cache: FoldCache,
) -> OutOfFold:
    """Return the answers of the best of families, or of their stack; networks are not tuned."""
    from voxcast.models.families.zoo import FAMILIES
    from voxcast.models.selection.learning import blend_all
    from voxcast.models.selection.search import Search, tune

    own = Validation(table, volumes, FOLDS, seed, cache=cache)
    searches = {}
    for who in families:
        name, _, columns = who.partition(":")
        if columns:
            params = {**FAMILIES[name].defaults, "columns": columns}
            answers = own.out_of_fold(name, params, "volume")
            searches[name] = Search(name, params, {}, answers, (), cut_short=False)
        else:
            searches[name] = tune(own, name, trials=trials, budget_s=float("inf"))
    learned = blend_all(own, searches)
    return learned.found[learned.best]


def _errors(own: pd.DataFrame, said: Sequence[OutOfFold]) -> dict[str, Any]:
    found = {}
    for target, k in (("cpu_s", CPU), ("peak_rss_bytes", MEMORY)):
        actual = own[target].to_numpy(dtype=float)
        shares = [100 * np.abs(np.exp(one.logs[:, k]) - actual) / actual for one in said]
        mean = clustered_mean(np.mean(shares, axis=0), own["subject"].tolist())
        found[target] = {
            "mape": mean.value,
            "mape_interval": bounds_of(mean),
            "between_seeds": float(np.std([share.mean() for share in shares])),
        }
    return found
