"""Stage explain: what each best model rests on.

The importance of features on held-out training subjects, and what the recorded runs alone would
have predicted of those measured here.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.files import atomic_path, write_json
from voxcast.models.importance import explain_model
from voxcast.models.selection.leaderboard_files import load_leaderboard
from voxcast.models.selection.recorded_runs_alone import predict_without_own_runs
from voxcast.models.selection.validations import validations

TUNED = Path("data/tune")
OUT = Path("results/explain")


@exits_cleanly
def main() -> int:
    """Write results/explain."""
    cfg = config.load()
    importances, from_records = [], {}
    for app, validation in validations(Path(), cfg.tune.folds, cfg.tune.seed).items():
        leaderboard = load_leaderboard(TUNED / app)
        best = leaderboard.best
        params = leaderboard.params[best]
        importances.append(explain_model(validation, best, params))
        from_records[app] = predict_without_own_runs(validation, best, params)
    tables = {
        "shuffled": pd.concat([importance.shuffled for importance in importances]),
        "dependence": pd.concat([importance.dependence for importance in importances]),
    }
    for name, frame in tables.items():
        with atomic_path(OUT / f"{name}.csv") as partial:
            frame.to_csv(partial, index=False, float_format="%.6g")
    content = {app: asdict(errors) for app, errors in from_records.items() if errors is not None}
    write_json(OUT / "recorded_runs_alone.json", content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
