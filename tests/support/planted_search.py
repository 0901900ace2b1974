"""A project with planted runs, whose families are to be searched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

import planted
from voxcast.images.network_volume import volume_dtype, write_small_volumes

ROOT = Path(__file__).parents[2]
TRIALS = 4


def search_project(folder: Path) -> Path:
    """Make a project with planted runs and two families that have parameters."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    families = ["median", "voxels", "extra_trees", "boosted"]
    params["tune"] |= {"families": families, "trials": TRIALS, "folds": 3}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    table = planted.table(8, apps=("segment",)).assign(noisy=False, image_set="heads")
    features = folder / "data" / "features"
    features.mkdir(parents=True)
    table.to_parquet(features / "train.parquet", index=False)
    unknown = np.zeros((), volume_dtype(8))
    write_small_volumes(features / "volumes.npz", dict.fromkeys(table["volume_id"], unknown), 8)
    return folder


def with_clusters(project: Path) -> None:
    """Give a project the clusters of this repository."""
    (project / "conf").mkdir()
    for name in ("cluster", "policy", "submit.yaml"):
        (project / "conf" / name).symlink_to(ROOT / "conf" / name)
