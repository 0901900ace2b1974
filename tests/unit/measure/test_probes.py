import math

import pytest

from voxcast.measure import host as probes


def test_probes_are_positive_numbers_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "BLOCK_S", 0.005)
    taken = probes.take_probes(tmp_path / "runs")
    values = [taken.probe_cpu, taken.probe_membw, taken.probe_disk]
    assert all(isinstance(value, float) and 0 < value < math.inf for value in values)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_slow_disk_is_written_to_at_least_once(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "DISK_S", 0.0)
    assert len(probes.disk_rates(tmp_path)) == 1


def test_a_disk_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        probes.take_probes(tmp_path / "file")
