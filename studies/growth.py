"""What to ask for after a predicted bound was exceeded, on runs outside the trial of worth.

Writes ``results/ladders/growth.json``. The runs are those of `studies/worth_jobs.py` without the
subjects of its hundred jobs, those of `dnn_train`, of which no job was, and the published SLANT
runs where ``VOXCAST_SLANT_ARTIFACT`` names them. Each is predicted by models that saw nothing of
its subject, of the trial's families at their default parameters. Batches that are reserved for
judging are not opened, as this chooses. Predictions are kept in ``build/ladders``: what was
stopped goes on there.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import json
import os
import sys
from pathlib import Path

import pandas as pd

import ladder_growth
from study import FOLDS, table_to_learn_from
from voxcast.errors import exits_cleanly
from voxcast.evaluation import out_of_sample
from voxcast.evaluation.holdouts import split
from voxcast.evaluation.imported_table import imported_table
from voxcast.evaluation.recorded_table import FULL, of_app
from voxcast.files import write_json
from voxcast.models.selection.cross_validation import FoldCache
from voxcast.runs import slant
from voxcast.runs.slant import VARIABLE
from voxcast.runs.table import frame_of

OUT, PREDICTIONS = Path("results/ladders/growth.json"), Path("build/ladders")
TRIAL = Path("results/worth/jobs.json")
FAMILIES, TRIALS, SEED = ("ridge", "extra_trees", "boosted"), 1, 0


@exits_cleanly
def main() -> int:
    """Predict the runs out of fold, and compare what is asked for after the bound."""
    trial = json.loads(TRIAL.read_text(encoding="utf-8"))["jobs"]
    in_trial = {(job["app"], job["subject"]) for job in trial}
    table = table_to_learn_from()
    predicted = {}
    for app in ("dnn_train", "ants_segment", "slant", "ants_register", "tile_segment"):
        path = PREDICTIONS / f"{app}.parquet"
        if not path.is_file():
            print(f"ladders: {app}", file=sys.stderr, flush=True)
            runs = _slant() if app == "slant" else of_app(table, app, FULL)
            if runs is None:
                continue
            _write(path, _out_of_fold(runs))
        runs = pd.read_parquet(path)
        seen = [(app, subject) in in_trial for subject in runs["subject"]]
        predicted[app] = runs[~pd.Series(seen, index=runs.index) & ~runs["noisy"]]
    write_json(OUT, ladder_growth.study(predicted, out_of_sample.UPPER))
    return 0


def _slant() -> pd.DataFrame | None:
    """Return the published runs with what was known before them; None where they are not here."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        print(f"ladders: no SLANT runs, as {VARIABLE} is not set", file=sys.stderr)
        return None
    runs = slant.read(Path(folder)).rows
    return imported_table(frame_of(runs), None, folder)


def _out_of_fold(runs: pd.DataFrame) -> pd.DataFrame:
    folds = split(runs.assign(scale=FULL), "subject", folds=5, seed=SEED).folds
    return pd.concat(
        out_of_sample.voxcast_predictions(
            runs.iloc[fold.train], runs.iloc[fold.test],
            families=FAMILIES, trials=TRIALS, seed=SEED, cache=FoldCache(FOLDS),
        ).assign(fold=number)
        for number, fold in enumerate(folds)
    )  # fmt: skip


def _write(path: Path, table: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    table.to_parquet(partial)
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
