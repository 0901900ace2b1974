from pathlib import Path

import pandas as pd

from voxcast.features.training_table import batches_to_learn_from


def batch(history, name, images=True, **columns):
    part = history / name / "2026-01-01-abc-1"
    part.mkdir(parents=True)
    rows = {"app": ["tool", "tool", "other"], "outcome": "completed", **columns}
    pd.DataFrame(rows).to_parquet(part / "runs.parquet")
    if images:
        pd.DataFrame({"volume_id": ["v"]}).to_parquet(history / name / "images.parquet")


def test_batches_with_completed_runs_are_named(tmp_path):
    batch(tmp_path, "heads")
    batch(tmp_path, "failed", outcome="failed")
    batch(tmp_path, "no_characteristics", images=False)
    batch(tmp_path, "judging")
    (tmp_path / "reserved.txt").write_text("judging\n")
    assert batches_to_learn_from(tmp_path, "tool") == {"heads": 2}
    assert batches_to_learn_from(tmp_path, "unheard") == {}
    assert batches_to_learn_from(tmp_path / "none", "tool") == {}


def test_recorded_batches_that_judge_are_reserved():
    history = Path(__file__).parents[3] / "data/history"
    batches = batches_to_learn_from(history, "ants_segment")
    assert "reference" in batches
    assert "second" not in batches
    assert "real" not in batches
