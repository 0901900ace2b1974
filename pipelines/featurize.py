"""Stage featurize: one row per run, with a file for each side of the split."""

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.split import side
from voxcast.features.table import build_table, censored_subjects, split
from voxcast.files import atomic_path, write_json

CATALOGUE = Path("data/catalogue")
RUNS = Path("data/runs")
OUT = Path("data/features")


@exits_cleanly
def main() -> int:
    """Write data/features."""
    cfg = config.load()
    profiles = pd.concat(
        [pd.read_parquet(RUNS / device / "profiles.parquet") for device in ("cpu", "gpu")]
    )
    profiles = profiles[profiles["app"].isin(cfg.apps)]
    catalogue = pd.read_parquet(CATALOGUE / "catalogue.parquet")
    table, left_out = build_table(
        profiles,
        catalogue,
        pd.read_parquet(CATALOGUE / "characteristics.parquet"),
    )
    sides = split(table, left_out, cfg.evaluation.split_seed, cfg.evaluation.test_fraction)
    for name, runs in (("train", sides.train), ("test", sides.test)):
        with atomic_path(OUT / f"{name}.parquet") as partial:
            runs.to_parquet(partial, index=False)
    censored = censored_subjects(profiles, set(catalogue["volume_id"].dropna()))
    in_training = censored["subject"].map(
        lambda s: side(str(s), cfg.evaluation.split_seed, cfg.evaluation.test_fraction) == "train"
    )
    with atomic_path(OUT / "censored.parquet") as partial:
        censored[in_training.astype(bool)].to_parquet(partial, index=False)
    write_json(
        OUT / "summary.json",
        {
            "left_out": left_out,
            "train": {"runs": len(sides.train), "subjects": sides.train["subject"].nunique()},
            "test": {"runs": len(sides.test), "subjects": sides.test["subject"].nunique()},
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
