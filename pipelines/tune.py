"""Stage tune: search every family on the training side; the test side is not opened."""

import sys
import time
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import sha256_file
from voxcast.models.leaderboard import Leaderboard
from voxcast.models.search import Trial, tune
from voxcast.models.validation import Validation
from voxcast.tracking import runs

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")


@exits_cleanly
def main() -> int:
    """Write data/tune and results/tune, and log studies and trials."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    volumes = volumes_of(table, VOLUMES)
    validation = Validation(table, volumes, cfg.tune.folds, cfg.tune.seed)
    table_tag = {"table_sha256": sha256_file(TRAIN)}
    session = runs.connect(Path())
    searches = []
    deadline = time.monotonic() + cfg.tune.budget_s
    measured = {
        "runs": len(table),
        "subjects": table["subject"].nunique(),
        "cpu_hours": table["cpu_s"].sum() / 3600,
    }
    title = f"campaign {cfg.campaign.name}"
    params = asdict(cfg.campaign)
    with runs.run(
        session, "campaign", title, tags=table_tag, params=params, metrics=measured
    ) as campaign:
        runs.log_dataset(campaign, table, TRAIN, table_tag["table_sha256"], "training")
        bar = tqdm(cfg.tune.families, desc="tune", unit="family", disable=None)
        for n, name in enumerate(bar):
            bar.set_postfix_str(name)
            tags = {**table_tag, "family": name}
            with runs.run(session, "study", name, parent=campaign, tags=tags) as study:

                def log(trial: Trial, study: str = study, tags: dict[str, str] = tags) -> None:
                    title = f"{tags['family']} {trial.number}"
                    shown = {**trial.params, "family": tags["family"]}
                    metrics = runs.prefixed("cv", trial.metrics) | {"fit_s": trial.duration_s}
                    state = {**tags, "state": trial.state}
                    with runs.run(
                        session, "trial", title,
                        parent=study, tags=state, params=shown, metrics=metrics,
                    ):  # fmt: skip
                        pass

                # What one family leaves of its share, the next ones may use.
                share_s = (deadline - time.monotonic()) / (len(cfg.tune.families) - n)
                found = tune(
                    validation, name, trials=cfg.tune.trials, budget_s=share_s, on_trial=log
                )
                best = {**found.params, "family": name, "trials": len(found.trials)}
                runs.add(study, runs.prefixed("cv", found.metrics), best)
            searches.append(found)
    board = Leaderboard.of(validation, searches)
    board.save(Path("data/tune"), Path("results/tune"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
