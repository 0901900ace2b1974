"""Stage evaluate: all families on held-out subjects; the only stage that reads the test table."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast import config
from voxcast.config import EvaluationConfig, TuneConfig
from voxcast.errors import exits_cleanly
from voxcast.evaluation.headline import new_day_errors
from voxcast.features.rows import volumes_of
from voxcast.files import atomic_path, write_json
from voxcast.models.explanation import law_in_words
from voxcast.models.forecaster import Forecaster
from voxcast.models.metrics import (
    headline,
    predict_runs,
    target_metrics,
)
from voxcast.models.selection.cross_validation import validations
from voxcast.models.selection.leaderboard import LAW, Leaderboard, load_leaderboard

TEST = Path("data/features/test.parquet")
VOLUMES = Path("data/features/volumes.npz")
MODELS = Path("data/models")
TUNED = Path("data/tune")
OUT = Path("results/evaluate")


@exits_cleanly
def main() -> int:
    """Write results/evaluate."""
    params = config.load()
    cfg = params.evaluation
    table = pd.read_parquet(TEST)
    metrics_by_app: dict[str, dict[str, Any]] = {}
    headlines: dict[str, dict[str, Any]] = {}
    laws: dict[str, dict[str, str]] = {}
    frames = []
    for tuned in sorted(folder for folder in TUNED.iterdir() if folder.is_dir()):
        app, leaderboard = tuned.name, load_leaderboard(tuned)
        rows = table[table["app"] == app].reset_index(drop=True)
        evaluated = _evaluated(app, leaderboard, rows, cfg) if len(rows) else {}
        frames += [frame.assign(family=name) for name, frame in evaluated.items()]
        metrics_by_app[app] = {
            "runs": len(rows),
            "subjects": rows["subject"].nunique(),
            **{name: target_metrics(frame) for name, frame in evaluated.items()},
        }
        if LAW in leaderboard.params:
            laws[app] = law_in_words(Forecaster.load(MODELS / app / LAW).model_at("volume").model)
        # The headline numbers, for DVC to compare between commits.
        headlines[app] = headline(metrics_by_app[app], leaderboard.best)
    write_json(OUT / "families.json", metrics_by_app)
    write_json(OUT / "metrics.json", headlines)
    write_json(OUT / "laws.json", laws)
    with atomic_path(OUT / "new_days.csv") as partial:
        _new_days(params.tune).to_csv(partial, index=False, float_format="%.6g")
    with atomic_path(OUT / "predictions.csv") as partial:
        predictions = pd.concat(frames) if frames else pd.DataFrame({"family": []})
        predictions.to_csv(partial, index=False, float_format="%.6g")
    return 0


def _new_days(tune: TuneConfig) -> pd.DataFrame:
    """Return the errors of the best recipes on days that were not measured, by training runs."""
    frames = [pd.DataFrame(columns=["app"])]
    for app, validation in validations(Path(), tune.folds, tune.seed).items():
        leaderboard = load_leaderboard(TUNED / app, validation.table["cell_key"].tolist())
        name = leaderboard.best
        frames.append(new_day_errors(validation, name, leaderboard.params[name]).assign(app=app))
    return pd.concat(frames)


def _evaluated(
    app: str, leaderboard: Leaderboard, rows: pd.DataFrame, cfg: EvaluationConfig
) -> dict[str, pd.DataFrame]:
    """Predict the test runs of an application by all its models."""
    volumes = volumes_of(rows, VOLUMES)
    quantiles = cfg.lower_quantile, cfg.upper_quantile
    frames = {}
    for name in sorted(leaderboard.params):
        forecaster = Forecaster.load(MODELS / app / name)
        frames[name] = predict_runs(forecaster, rows, volumes, *quantiles)
    # All forecasters of an application have the same model of headers.
    frames["header_only"] = predict_runs(
        forecaster, rows, volumes, *quantiles, input_level="header"
    )
    return frames


if __name__ == "__main__":
    sys.exit(main())
