"""Stage featurize: one row per run on record, with a file for each side of the split."""

from __future__ import annotations

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast import config
from voxcast.errors import TableError, exits_cleanly
from voxcast.features.rows import MIN_SUBJECTS, Sides, side, split
from voxcast.features.training_table import stopped_runs, training_runs, training_table
from voxcast.files import atomic_path, write_json
from voxcast.images.network_volume import SMALL_VOLUMES, write_small_volumes

CATALOGUE = Path("data/catalogue")
RUNS = Path("data/runs")
HISTORY = Path("data/history")
OUT = Path("data/features")


@exits_cleanly
def main() -> int:
    """Write data/features.

    Raises
    ------
    TableError
        If no run can be used, with the causes.
    """
    cfg = config.load()
    training = training_runs(
        [RUNS / device / "runs.parquet" for device in ("cpu", "gpu")],
        CATALOGUE,
        HISTORY,
        cfg.features.history,
        cfg.apps,
        cfg.features.coarse_points,
        cfg.features.network_points,
    )
    table, left_out = training_table(training, cfg.apps)
    if table.empty:
        causes = [f"{n} {why} ({app})" for app in left_out for why, n in left_out[app].items()]
        problem = f"no usable completed run: {', '.join(causes) or 'none is on record'}"
        raise TableError(problem, RUNS, "see outcome in runs.parquet, or measure more volumes")
    split_seed, test_fraction = cfg.evaluation.split_seed, cfg.evaluation.test_fraction
    sides = split(table, split_seed, test_fraction)
    for name, runs in (("train", sides.train), ("test", sides.test)):
        with atomic_path(OUT / f"{name}.parquet") as partial:
            runs.to_parquet(partial, index=False)
    used = {
        key: training.small_volumes[key]
        for key in set(table["volume_id"]) & training.small_volumes.keys()
    }
    write_small_volumes(OUT / SMALL_VOLUMES, used, cfg.features.network_points)
    stopped = stopped_runs(training, cfg.apps)
    on_training_side = stopped["subject"].map(
        lambda s: side(str(s), split_seed, test_fraction) == "train"
    )
    # Without a stopped run the column has no type.
    in_training = stopped["app"].isin(list(sides.not_judged)) | on_training_side.astype(bool)
    with atomic_path(OUT / "stopped.parquet") as partial:
        stopped[in_training].to_parquet(partial, index=False)
    present = pd.read_parquet(CATALOGUE / "catalogue.parquet", columns=["volume_id"])
    write_json(OUT / "summary.json", _summary(table, left_out, sides, set(present["volume_id"])))
    return 0


def _summary(
    table: pd.DataFrame,
    left_out: dict[str, dict[str, int]],
    sides: Sides,
    present_volumes: set[str],
) -> dict[str, Any]:
    here = table["batch"] == ""
    present = here & table["volume_id"].isin(present_volumes)
    counts = {
        "runs": len(table),
        "noisy": int(table["noisy"].sum()),
        "of_present_image_set": int(present.sum()),
        "of_earlier_image_sets": table[here & ~present]["image_set"].value_counts().to_dict(),
        "of_recorded_batches": table[~here]["batch"].value_counts().to_dict(),
        "train": _counted(sides.train),
        "test": _counted(sides.test),
    }
    by_app: dict[str, Any] = {}
    for app, reasons in left_out.items():
        train, test = (rows[rows["app"] == app] for rows in (sides.train, sides.test))
        by_app[app] = {"train": _counted(train), "test": _counted(test), "left_out": reasons}
        if app in sides.not_judged:
            by_app[app]["note"] = (
                f"fewer than {MIN_SUBJECTS} subjects: all train, and cross-validation judges"
            )
    return counts | {"apps": by_app}


def _counted(runs: pd.DataFrame) -> dict[str, int]:
    return {"runs": len(runs), "subjects": runs["subject"].nunique()}


if __name__ == "__main__":
    sys.exit(main())
