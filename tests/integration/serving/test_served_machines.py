"""Answers say which machine they are for: the one asked about, or the one that they run on."""

from pathlib import Path

import pytest

from champions import HEADER_ROW, machines_bundle
from voxcast.allocation.recommendation import caveats, machine_line
from voxcast.errors import ModelError
from voxcast.measure.host import host_facts
from voxcast.serving.prediction_service import PredictionService


def test_an_answer_is_for_the_machine_that_was_asked_about(tmp_path: Path) -> None:
    service = PredictionService(machines_bundle(tmp_path))
    rows = [{**HEADER_ROW, "host": name} for name in ("a", "b", "fast", "big", "nowhere")]
    slow, fast, by_class, by_node, unknown = service.predict(rows)
    assert slow["cpu_s_median"] / fast["cpu_s_median"] == pytest.approx(1.65, rel=0.08)
    assert fast["host"] == "b"
    assert fast["host_runs"] == by_node["host_runs"] == 12
    assert by_class["cpu_s_median"] == by_node["cpu_s_median"] == fast["cpu_s_median"]
    assert slow["calibrated"]
    assert fast["calibrated"]
    assert slow["peak_rss_bytes_upper"] == unknown["peak_rss_bytes_upper"]
    assert not unknown["calibrated"]
    assert unknown["cpu_s_upper"] / unknown["cpu_s_median"] > 1.3
    (reason,) = caveats(unknown, 0.95)
    assert "voxcast measure --host" in reason
    assert "the speed of nowhere is" in reason
    assert machine_line(fast).startswith("for machine b: speed 1.5")


def test_by_default_an_answer_is_for_this_machine(tmp_path: Path) -> None:
    (unknown,) = PredictionService(machines_bundle(tmp_path / "other")).predict([HEADER_ROW])
    assert unknown["host"] == host_facts().host_id
    assert not unknown["calibrated"]
    bundle = machines_bundle(tmp_path / "here", host_facts().host_id, today=True)
    (here,) = PredictionService(bundle).predict([HEADER_ROW])
    assert here["calibrated"]
    assert here["host_runs"] == 12
    # The sitting goes on, so its speed is known better than that of a new one.
    another_day = machines_bundle(tmp_path / "later", host_facts().host_id)
    (later,) = PredictionService(another_day).predict([HEADER_ROW])
    assert here["speed_upper"] < later["speed_upper"]


@pytest.mark.parametrize("name", ["", "x" * 501])
def test_the_name_of_a_machine_is_checked(tmp_path: Path, name: str) -> None:
    service = PredictionService(machines_bundle(tmp_path))
    with pytest.raises(ModelError, match="host"):
        service.predict([{**HEADER_ROW, "host": name}])
