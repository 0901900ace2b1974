"""Stage evaluate: every family on held-out subjects; the only stage that opens the test table."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import atomic_path, sha256_file, write_json, write_text
from voxcast.models.evaluation import headline, predict_runs, target_metrics
from voxcast.models.forecaster import Forecaster
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
    leaderboard = load_leaderboard(TUNED)
    metrics: dict[str, object] = {
        "runs": len(table),
        "subjects": table["subject"].nunique() if len(table) else 0,
    }
    frames = []
    if len(table):
        volumes = volumes_of(table, VOLUMES)
        session = runs.connect(Path())
        quantiles = cfg.lower_quantile, cfg.upper_quantile
        trained_on = sha256_file(TEST.with_name("train.parquet"))
        for name in sorted(leaderboard.params):
            folder = MODELS / name
            forecaster = Forecaster.load(folder)
            predictions = predict_runs(forecaster, table, volumes, *quantiles)
            metrics[name] = by_target = target_metrics(predictions)
            frames.append(predictions.assign(family=name))
            flat = {f"{t}/{m}": v for t, scores in by_target.items() for m, v in scores.items()}
            params, cv_metrics = leaderboard.params[name], leaderboard.metrics["volume"][name]
            final = final_run(session, name, folder, trained_on, params, cv_metrics)
            runs.add(final, runs.prefixed("test", flat))
            runs.log_dataset(final, table, TEST, sha256_file(TEST), "evaluation")
        header = predict_runs(forecaster, table, volumes, *quantiles, input_level="header")
        metrics["header_only"] = target_metrics(header)
        frames.append(header.assign(family="header_only"))
    write_json(OUT / "families.json", metrics)
    # The headline numbers, for DVC to compare between commits.
    write_json(OUT / "metrics.json", headline(metrics, leaderboard.best))
    with atomic_path(OUT / "predictions.csv") as partial:
        predictions = pd.concat(frames) if frames else pd.DataFrame({"family": []})
        predictions.to_csv(partial, index=False, float_format="%.6g")
    return 0


def _log_opening(sha256: str) -> None:
    """Add a line to the log of openings; the receipt of the champion counts them."""
    log = OUT / "openings.jsonl"
    lines = log.read_text(encoding="utf-8") if log.is_file() else ""
    line = {"table_sha256": sha256, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    write_text(log, lines + json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
