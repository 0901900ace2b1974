"""Stage tune: search every family on the training side; the test side is not read."""

import sys
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import sha256_file
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.leaderboard_files import save_leaderboard
from voxcast.models.selection.learning import learn
from voxcast.models.selection.search import Search
from voxcast.tracking import runs
from voxcast.tracking.search_runs import SearchRuns

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
FOLDS = Path("build/folds")  # fits of earlier runs on the same data


@exits_cleanly
def main() -> int:
    """Write data/tune and results/tune, and log studies and trials."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    volumes = volumes_of(table, VOLUMES)
    validation = Validation(table, volumes, cfg.tune.folds, cfg.tune.seed, cache=FoldCache(FOLDS))
    tags = {"table_sha256": sha256_file(TRAIN)}
    session = runs.connect(Path())
    totals = {
        "runs": len(table),
        "subjects": table["subject"].nunique(),
        "cpu_hours": table["cpu_s"].sum() / 3600,
    }
    title, params = f"campaign {cfg.campaign.name}", cfg.campaign.model_dump()
    bar = tqdm(total=len(cfg.tune.families), desc="tune", unit="family", disable=None)
    with (
        bar,
        runs.run(session, "campaign", title, tags=tags, params=params, metrics=totals) as campaign,
        SearchRuns(session, campaign, tags) as searches,
    ):
        runs.log_dataset(campaign, table, TRAIN, tags["table_sha256"], "training")

        def on_family(name: str) -> None:
            bar.set_postfix_str(name)
            searches.on_family(name)

        def on_search(search: Search) -> None:
            searches.on_search(search)
            bar.update()

        leaderboard = learn(
            validation,
            cfg.tune.families,
            trials=cfg.tune.trials,
            budget_s=cfg.tune.budget_s,
            input_levels=("volume", "header"),
            on_family=on_family,
            on_trial=searches.on_trial,
            on_search=on_search,
        )
        searches.log_ensembles(leaderboard)
    save_leaderboard(
        leaderboard, table["cell_key"].tolist(), Path("data/tune"), Path("results/tune")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
