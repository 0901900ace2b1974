"""The training runs of each application with their folds, as the stage featurize left them."""

from __future__ import annotations

from pathlib import Path

from voxcast.errors import ModelError
from voxcast.features.table import tables_by_app, volumes_of
from voxcast.models.selection.cross_validation import FoldCache, Validation

TRAIN = Path("data/features/train.parquet")
STOPPED = Path("data/features/stopped.parquet")
VOLUMES = Path("data/features/volumes.npz")
FOLDS = Path("build/folds")  # fits of tuning


def validations(project: Path, folds: int, seed: int) -> dict[str, Validation]:
    """Return the training runs of each application on record, with their folds.

    Raises
    ------
    ModelError
        If nothing was learned in this project.
    """
    import pandas as pd

    if not (project / TRAIN).is_file():
        raise ModelError("no training table", project / TRAIN, "run `voxcast learn`")
    stopped, cache = pd.read_parquet(project / STOPPED), FoldCache(project / FOLDS)
    return {
        app: Validation(
            table,
            volumes_of(table, project / VOLUMES),
            folds,
            seed,
            cache=cache,
            stopped=stopped[stopped["app"] == app],
        )
        for app, table in tables_by_app(pd.read_parquet(project / TRAIN)).items()
    }
