"""Stage evaluate: every family on unseen subjects. Nothing else opens the test table."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import atomic_path, sha256_file, write_json, write_text
from voxcast.models.evaluation import headline, judge, predict_runs
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.leaderboard import Leaderboard
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
    _note_opening(sha256_file(TEST))
    metrics: dict[str, object] = {
        "runs": len(table),
        "subjects": table["subject"].nunique() if len(table) else 0,
    }
    frames = []
    if len(table):
        volumes = volumes_of(table, VOLUMES)
        session, board = runs.connect(Path()), Leaderboard.load(TUNED)
        quantiles = cfg.lower_quantile, cfg.upper_quantile
        trained_on = sha256_file(TEST.with_name("train.parquet"))
        for folder in sorted(p for p in MODELS.iterdir() if p.is_dir()):
            forecaster = Forecaster.load(folder)
            predicted = predict_runs(forecaster, table, volumes, *quantiles)
            metrics[folder.name] = found = judge(predicted)
            frames.append(predicted.assign(family=folder.name))
            flat = {f"{t}/{m}": v for t, of_t in found.items() for m, v in of_t.items()}
            of_family = board.families[folder.name]
            final = final_run(session, folder.name, folder, trained_on, of_family)
            runs.add(final, runs.prefixed("test", flat))
            runs.log_dataset(final, table, TEST, sha256_file(TEST), "evaluation")
        header = predict_runs(forecaster, table, volumes, *quantiles, input_level="header")
        metrics["header_only"] = judge(header)
        frames.append(header.assign(family="header_only"))
    write_json(OUT / "families.json", metrics)
    # A few numbers, for people and for comparing states of the repository.
    write_json(OUT / "metrics.json", headline(metrics, Leaderboard.load(TUNED).best))
    with atomic_path(OUT / "predictions.csv") as partial:
        everything = pd.concat(frames) if frames else pd.DataFrame({"family": []})
        everything.to_csv(partial, index=False, float_format="%.6g")
    return 0


def _note_opening(sha256: str) -> None:
    """Add a line to the book of openings; the receipt of the champion counts them."""
    book = OUT / "openings.jsonl"
    lines = book.read_text(encoding="utf-8") if book.is_file() else ""
    line = {"table_sha256": sha256, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    write_text(book, lines + json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
