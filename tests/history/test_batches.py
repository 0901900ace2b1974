from pathlib import Path

import pandas as pd

from voxcast.history.batches import batches_to_learn_from


def batch(history, name, images=True, **columns):
    part = history / name / "2026-01-01-abc-1"
    part.mkdir(parents=True)
    rows = {"app": ["tool", "tool", "other"], "host_class": "A", "outcome": "completed", **columns}
    pd.DataFrame(rows).to_parquet(part / "runs.parquet")
    if images:
        pd.DataFrame({"volume_id": ["v"]}).to_parquet(history / name / "images.parquet")


def test_batches_with_completed_runs_on_the_same_hardware_are_named(tmp_path):
    batch(tmp_path, "heads")
    batch(tmp_path, "elsewhere", host_class="B")
    batch(tmp_path, "failed", outcome="failed")
    batch(tmp_path, "no_characteristics", images=False)
    batch(tmp_path, "judging")
    (tmp_path / "reserved.txt").write_text("judging\n")
    assert batches_to_learn_from(tmp_path, "tool", "A") == {"heads": 2}
    assert batches_to_learn_from(tmp_path, "unheard", "A") == {}
    assert batches_to_learn_from(tmp_path / "none", "tool", "A") == {}


def test_recorded_batches_that_judge_are_reserved():
    history = Path(__file__).parents[2] / "data/history"
    runs = pd.read_parquet(next(history.glob("second/*/runs.parquet")))
    batches = batches_to_learn_from(history, "ants_segment", runs["host_class"].iloc[0])
    assert "second" not in batches
    assert "real" not in batches
