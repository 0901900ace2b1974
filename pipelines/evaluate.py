"""Stage evaluate: all families on held-out subjects; the only stage that opens the test table."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast import config
from voxcast.config import EvaluationConfig
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import atomic_path, sha256_file, write_json, write_text
from voxcast.models.evaluation import headline, predict_runs, target_metrics
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.leaderboard import Leaderboard
from voxcast.models.selection.leaderboard_files import load_leaderboard
from voxcast.tracking import runs
from voxcast.tracking.finals import final_run

TEST = Path("data/features/test.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
MODELS = Path("data/models")
TUNED = Path("data/tune")
OUT = Path("results/evaluate")


@exits_cleanly
def main() -> int:
    """Write results/evaluate and add the test metrics to the final runs."""
    cfg = config.load().evaluation
    table = pd.read_parquet(TEST)
    _log_opening(sha256_file(TEST))
    session = runs.connect(Path())
    metrics_by_app: dict[str, dict[str, Any]] = {}
    headlines: dict[str, dict[str, Any]] = {}
    frames = []
    for tuned in sorted(folder for folder in TUNED.iterdir() if folder.is_dir()):
        app, leaderboard = tuned.name, load_leaderboard(tuned)
        rows = table[table["app"] == app].reset_index(drop=True)
        evaluated = _evaluated(session, app, leaderboard, rows, cfg) if len(rows) else {}
        frames += [frame.assign(family=name) for name, frame in evaluated.items()]
        metrics_by_app[app] = {
            "runs": len(rows),
            "subjects": rows["subject"].nunique(),
            **{name: target_metrics(frame) for name, frame in evaluated.items()},
        }
        # The headline numbers, for DVC to compare between commits.
        headlines[app] = headline(metrics_by_app[app], leaderboard.best)
    write_json(OUT / "families.json", metrics_by_app)
    write_json(OUT / "metrics.json", headlines)
    with atomic_path(OUT / "predictions.csv") as partial:
        predictions = pd.concat(frames) if frames else pd.DataFrame({"family": []})
        predictions.to_csv(partial, index=False, float_format="%.6g")
    return 0


def _evaluated(
    session: runs.Session,
    app: str,
    leaderboard: Leaderboard,
    rows: pd.DataFrame,
    cfg: EvaluationConfig,
) -> dict[str, pd.DataFrame]:
    """Predict the test runs of an application by all its models; log the errors."""
    volumes, trained_on = volumes_of(rows, VOLUMES), sha256_file(TEST.with_name("train.parquet"))
    quantiles = cfg.lower_quantile, cfg.upper_quantile
    frames = {}
    for name in sorted(leaderboard.params):
        folder = MODELS / app / name
        forecaster = Forecaster.load(folder)
        frames[name] = predict_runs(forecaster, rows, volumes, *quantiles)
        errors = target_metrics(frames[name])
        flat = {f"{t}/{m}": v for t, scores in errors.items() for m, v in scores.items()}
        params, cv_metrics = leaderboard.params[name], leaderboard.metrics["volume"][name]
        final = final_run(session, app, name, folder, trained_on, params, cv_metrics)
        runs.add(final, runs.prefixed("test", flat))
        runs.log_dataset(final, rows, TEST, sha256_file(TEST), "evaluation")
    # All forecasters of an application have the same model of headers.
    frames["header_only"] = predict_runs(
        forecaster, rows, volumes, *quantiles, input_level="header"
    )
    return frames


def _log_opening(sha256: str) -> None:
    """Add a line to the log of openings; the receipt of the champion counts them."""
    log = OUT / "openings.jsonl"
    lines = log.read_text(encoding="utf-8") if log.is_file() else ""
    line = {"table_sha256": sha256, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    write_text(log, lines + json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
