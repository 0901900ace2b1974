"""Drift of a machine, measured on anchors."""

import numpy as np
import pytest

from synthetic_campaign import DRIFT, Campaign
from voxcast.analysis.drift import drift, largest_change_by_noise
from voxcast.report.run_tables import anchor_changes


def volume(n: int) -> dict[str, object]:
    return {"volume_id": f"v{n}", "subject": f"{n}", "shape_i": 100, "shape_j": 100, "shape_k": 90}


def test_planted_drift_is_drifted_relative_to_the_first_sitting() -> None:
    campaign = Campaign()
    campaign.images([volume(0), volume(1)])
    drifted = drift(campaign.tables()[0])
    assert drifted is not None
    assert [sitting[-1] for sitting in drifted.sittings] == ["1", "2", "3"]
    assert len(drifted.anchors) == 3
    for anchor in drifted.anchors:
        changes = [DRIFT[k] / DRIFT[1] - 1 for k in DRIFT]
        assert list(anchor.change.values()) == pytest.approx(changes, abs=0.02)
    assert drifted.largest[1] == pytest.approx(-0.03, abs=0.02)
    assert drifted.changes == 6
    table = anchor_changes(drifted, {"v0": "head.nii.gz"})
    assert table.head[1] == "ants_register, cpu, 1 CPU, head.nii.gz"
    assert [row[0] for row in table.rows] == drifted.sittings
    assert table.rows[2][1].startswith("−")


def test_one_sitting_has_no_drift() -> None:
    campaign = Campaign()
    campaign.run("app", 5, 5, {}, repeat=1001, sitting=1)
    campaign.run("app", 5, 5, {}, repeat=0, sitting=2)
    assert drift(campaign.tables()[0]) is None
    campaign.run("app", 5, 5, {}, repeat=1003, sitting=3)
    campaign.run("app", 0, 5, {}, repeat=1004, sitting=4)  # nothing to divide by
    drifted = drift(campaign.tables()[0])
    assert drifted is not None
    assert len(drifted.sittings) == 2


def test_disturbed_anchors_and_other_machines_are_no_drift() -> None:
    campaign = Campaign()
    for sitting, factor in ((1, 1.0), (2, 1.0), (3, 2.0)):
        campaign.run("app", 5 * factor, 5 * factor, {}, repeat=1000 + sitting, sitting=sitting)
    runs = campaign.tables()[0].sort_values("started_at", ignore_index=True)
    disturbed = runs.assign(noisy=[False, False, True])
    drifted = drift(disturbed)
    assert drifted is not None
    assert drifted.largest[1] == pytest.approx(0, abs=0.02)
    assert drift(runs.assign(host_id=["a", "b", "c"])) is None


def test_the_largest_of_several_changes_stays_below_the_bound_as_often_as_stated() -> None:
    rng = np.random.default_rng(0)
    logs = rng.normal(0, 0.01, (20_000, 9))
    largest = np.abs(np.expm1(logs[:, 1:] - logs[:, :1])).max(axis=1)
    below = (largest < largest_change_by_noise(1.0, 8)).mean()
    assert 0.95 <= below < 0.975  # changes from a common first run are correlated
