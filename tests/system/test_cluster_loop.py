"""Jobs that were really submitted become a model, which is watched, and replaced when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from submitted_project import APP, SubmittedProject, voxcast
from voxcast.runs.store import load_history

FIRST, NEW = 24, 26


@pytest.mark.slow
def test_an_application_that_became_slower_is_noticed_and_learned(tmp_path: Path) -> None:
    project = SubmittedProject(tmp_path)
    project.submit(FIRST, by_hand=True)
    first = voxcast(tmp_path, "learn", "--retrain", "--app", APP)
    assert first.returncode == 0, first.stderr
    assert f"{APP}: ridge is champion, version 1: first" in first.stdout
    # The same application goes on.
    predicted = project.submit(20)
    assert "new in the history: 20 completed" in predicted["messages"]
    runs = load_history([tmp_path / "data/history/jobs"])
    labels = [json.loads(text) for text in runs.tail(20)["labels_json"]]
    assert {row["model_version"] for row in labels} == {"1"}
    assert all(row["upper_runtime_s"] > row["predicted_runtime_s"] > 0 for row in labels)
    assert voxcast(tmp_path, "status", "--drift").returncode in (
        0,
        1,
    )  # a busy machine is a drift as well
    # Now it takes three times as long.
    project.submit(NEW, factor=3.0)
    drift = voxcast(tmp_path, "status", "--drift", "--last", NEW, "--json")
    assert drift.returncode == 1, drift.stderr
    content = json.loads(drift.stdout)[APP]
    assert content["verdict"] == "drifted"
    assert content["notes"] == []
    assert "the median of runtime" in content["drifted"]
    assert content["coverage"]["runtime_s"]["subjects"] == NEW
    project.submit(NEW, factor=3.0)
    retrained = voxcast(tmp_path, "learn", "--retrain", "--json")
    assert retrained.returncode == 0, retrained.stderr
    receipt = json.loads(retrained.stdout)[APP]
    assert receipt["registered"], receipt["detail"]
    assert receipt["reason"] == "better"
    assert receipt["version"] == "2"
    # Nothing is new to it.
    again = voxcast(tmp_path, "learn", "--retrain")
    assert again.stdout.startswith(f"{APP}: too few new jobs, nothing was changed: 0 runs of 0")
    back = voxcast(tmp_path, "models", "rollback")
    assert back.stdout.startswith(f"version 1 is champion; {APP} as in version 1"), back.stderr
