"""Stage tune: search every family on the training side; the test side is not opened."""

import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import sha256_file
from voxcast.models.selection.cross_validation import Validation, error_metrics
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.leaderboard import Leaderboard
from voxcast.models.selection.learning import blend_all, shares
from voxcast.models.selection.search import Trial, tune
from voxcast.tracking import runs

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
    table_tag = {"table_sha256": sha256_file(TRAIN)}
    session = runs.connect(Path())
    searches = {}
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
        chosen = shares(cfg.tune.families, len(table), cfg.tune.budget_s)
        bar = tqdm(chosen, total=len(cfg.tune.families), desc="tune", unit="family", disable=None)
        for name, share_s in bar:
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

                found = tune(
                    validation, name, trials=cfg.tune.trials, budget_s=share_s, on_trial=log
                )
                best = {**found.params, "family": name, "trials": len(found.trials)}
                runs.add(study, runs.prefixed("cv", found.metrics), best)
            searches[name] = found
        learned = blend_all(validation, searches)
        for name in learned.weights:
            tags = {**table_tag, "family": name}
            metrics = error_metrics(table, learned.found[name].logs)
            with runs.run(session, "study", name, parent=campaign, tags=tags) as study:
                runs.add(study, runs.prefixed("cv", metrics), {"family": name, "trials": 0})
    board = Leaderboard.of(validation, learned)
    board.save(Path("data/tune"), Path("results/tune"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
