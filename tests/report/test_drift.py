"""Drift of a machine, by anchors."""

import pytest

from made_up_campaign import DRIFT, Campaign
from voxcast.analysis.drift import drift
from voxcast.report.run_tables import drift as drift_table


def volume(n: int) -> dict[str, object]:
    return {"volume_id": f"v{n}", "subject": f"{n}", "shape_i": 100, "shape_j": 100, "shape_k": 90}


def test_planted_drift_is_found_relative_to_the_first_sitting() -> None:
    made = Campaign()
    made.images([volume(0), volume(1)])
    found = drift(made.tables()[0])
    assert found is not None
    assert [sitting[-1] for sitting in found.sittings] == ["1", "2", "3"]
    assert len(found.anchors) == 3
    for one in found.anchors:
        changes = [DRIFT[k] / DRIFT[1] - 1 for k in DRIFT]
        assert list(one.change.values()) == pytest.approx(changes, abs=0.02)
    assert found.largest[1] == pytest.approx(-0.03, abs=0.02)
    table = drift_table(found, {"v0": "head.nii.gz"})
    assert table.head[1] == "ants_register, cpu, 1 CPU, head.nii.gz"
    assert [row[0] for row in table.rows] == found.sittings
    assert table.rows[2][1].startswith("−")


def test_one_sitting_has_no_drift() -> None:
    made = Campaign()
    made.run("app", 5, 5, {}, repeat=1001, sitting=1)
    made.run("app", 5, 5, {}, repeat=0, sitting=2)
    assert drift(made.tables()[0]) is None
    made.run("app", 5, 5, {}, repeat=1003, sitting=3)
    made.run("app", 0, 5, {}, repeat=1004, sitting=4)  # nothing to divide by
    found = drift(made.tables()[0])
    assert found is not None
    assert len(found.sittings) == 2


def test_disturbed_anchors_and_other_machines_are_no_drift() -> None:
    made = Campaign()
    for sitting, factor in ((1, 1.0), (2, 1.0), (3, 2.0)):
        made.run("app", 5 * factor, 5 * factor, {}, repeat=1000 + sitting, sitting=sitting)
    runs = made.tables()[0].sort_values("started_at", ignore_index=True)
    disturbed = runs.assign(noisy=[False, False, True])
    found = drift(disturbed)
    assert found is not None
    assert found.largest[1] == pytest.approx(0, abs=0.02)
    assert drift(runs.assign(host_id=["a", "b", "c"])) is None
