"""Stage tune: search every family for each application; the test side is not read."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
import time
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.by_app import tables_by_app
from voxcast.features.table import volumes_of
from voxcast.files import sha256_file
from voxcast.log import progress
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.leaderboard_files import save_leaderboard, save_table
from voxcast.models.selection.learning import learn
from voxcast.models.selection.search import Search
from voxcast.records import as_fields
from voxcast.tracking import runs
from voxcast.tracking.search_runs import SearchRuns

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/features/volumes.npz")
FOLDS = Path("build/folds")  # fits of earlier runs on the same data
TUNED = Path("data/tune")
LEADERBOARD = Path("results/tune/leaderboard.csv")


@exits_cleanly
def main() -> int:
    """Write data/tune and results/tune, and log studies and trials."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    cache = FoldCache(FOLDS)
    tags = {"table_sha256": sha256_file(TRAIN)}
    session = runs.connect(Path())
    totals = {
        "runs": len(table),
        "subjects": table["subject"].nunique(),
        "cpu_hours": table["cpu_s"].sum() / 3600,
    }
    title, params = f"campaign {cfg.campaign.name}", as_fields(cfg.campaign)
    tables, leaderboards = tables_by_app(table), {}
    searched: list[Search] = []
    deadline = time.monotonic() + cfg.tune.budget_s
    bar = progress(total=len(tables) * len(cfg.tune.families), desc="tune", unit="family")
    with (
        bar,
        runs.run(session, "campaign", title, tags=tags, params=params, metrics=totals) as campaign,
    ):
        runs.log_dataset(campaign, table, TRAIN, tags["table_sha256"], "training")
        for number, (app, rows) in enumerate(tables.items()):
            validation = Validation(
                rows, volumes_of(rows, VOLUMES), cfg.tune.folds, cfg.tune.seed, cache=cache
            )
            with SearchRuns(session, campaign, app, tags) as searches:

                def on_family(name: str, app: str = app, log: SearchRuns = searches) -> None:
                    bar.set_postfix_str(f"{app} {name}")
                    log.on_family(name)

                def on_search(search: Search, log: SearchRuns = searches) -> None:
                    log.on_search(search)
                    bar.update()
                    if bar.disable:  # not on a terminal, as in `voxcast learn`
                        searched.append(search)
                        count = f"{len(searched)} of {bar.total} families"
                        print(f"tune: {count}", file=sys.stderr, flush=True)

                leaderboard = learn(
                    validation,
                    cfg.tune.families,
                    trials=cfg.tune.trials,
                    # Time that an application does not use is shared by the next ones.
                    budget_s=(deadline - time.monotonic()) / (len(tables) - number),
                    input_levels=("volume", "header"),
                    fixed_params=cfg.tune.fixed.get(app),
                    on_family=on_family,
                    on_trial=searches.on_trial,
                    on_search=on_search,
                )
                searches.log_ensembles(leaderboard)
            save_leaderboard(leaderboard, rows["cell_key"].tolist(), TUNED / app)
            leaderboards[app] = leaderboard
    save_table(leaderboards, LEADERBOARD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
