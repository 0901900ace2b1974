"""A hundred recorded runs, each predicted by models that saw nothing of its subject.

Writes ``results/worth/jobs.json``, from which `benchmarks/worth.py` makes the jobs that are
asked for in three ways. Subjects are held out in five folds; tuning, choice and calibration use
the other folds alone. The largest run of those folds is what a laboratory's rule knows.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import pandas as pd

from fold_predictions import voxcast_predictions
from study import FOLDS, table_to_learn_from
from voxcast.errors import exits_cleanly
from voxcast.evaluation.contenders import UPPER
from voxcast.evaluation.protocols import split
from voxcast.evaluation.recorded_table import of_app
from voxcast.features.rows import FULL
from voxcast.files import write_json
from voxcast.models.selection.cross_validation import FoldCache

OUT = Path("results/worth/jobs.json")
JOBS = {"ants_segment": 50, "ants_register": 25, "tile_segment": 25}
FAMILIES = ("ridge", "extra_trees", "boosted")
TRIALS = 3
SEED = 0
TARGETS = ("runtime_s", "peak_rss_bytes")


@exits_cleanly
def main() -> int:
    """Predict the runs of each application out of fold, and draw the jobs."""
    table = table_to_learn_from()
    drawn = []
    for app, count in JOBS.items():
        print(f"worth: {app}", file=sys.stderr, flush=True)
        runs = of_app(table, app, FULL)
        predicted = pd.concat(
            _of_fold(runs.iloc[fold.train], runs.iloc[fold.test])
            for fold in split(runs, "subject", folds=5, seed=SEED).folds
        )
        alone = predicted[(predicted["cpus"] == 1) & ~predicted["noisy"]]
        by_subject = alone.drop_duplicates("subject")
        drawn.append(by_subject.sample(count, random_state=SEED).sort_values("subject"))
    jobs = pd.concat(drawn)
    columns = [
        "app", "subject", *TARGETS, *(f"{t}_median" for t in TARGETS),
        *(f"{t}_upper" for t in TARGETS), *(f"{t}_largest" for t in TARGETS), "last_five_s",
        "calibrated",
    ]  # fmt: skip
    write_json(
        OUT,
        {
            "jobs": jobs[columns].to_dict("records"),
            "confidence": UPPER,
            "families": list(FAMILIES),
            "trials": TRIALS,
            "seed": SEED,
        },
    )
    return 0


def _of_fold(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Return the held-out runs with their predictions and what a rule takes from the others."""
    predicted = voxcast_predictions(
        train, test, families=FAMILIES, trials=TRIALS, seed=SEED, cache=FoldCache(FOLDS)
    )
    seen = train[train["cpus"] == 1].sort_values("started_at")
    for target in TARGETS:
        predicted[f"{target}_largest"] = float(seen[target].max())
    return predicted.assign(last_five_s=float(seen["runtime_s"].tail(5).mean()))


if __name__ == "__main__":
    sys.exit(main())
