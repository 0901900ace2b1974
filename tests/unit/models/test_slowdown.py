"""The slowdown law by hand."""

import pytest

from voxcast.models.point_model import SlowdownLaw


def test_slowdown_falls_back_to_coarser_groups() -> None:
    law = SlowdownLaw.fit([1, 1, 1, 2, 2, 2], ["h"] * 6, [1, 1, 1, 3, 3, 3], [1, 1, 1, 6, 6, 6])
    assert law.ratio(1, "h") == 1
    assert law.ratio(2, "elsewhere") == 0.5
    assert law.ratio(8) == pytest.approx(0.125)  # by the power through 1 and 2 CPUs
    assert law.ratio(4, "h") == pytest.approx(0.25)


def test_more_cpus_never_take_longer_than_measured_nor_less_cpu_time() -> None:
    def law(wall_of_two: float) -> SlowdownLaw:
        return SlowdownLaw.fit([1] * 3 + [2] * 3, [""] * 6, [1] * 3 + [wall_of_two] * 3, [1] * 6)

    assert law(1.5).ratio(8) == pytest.approx(1.5)
    assert law(0.3).ratio(4) == pytest.approx(0.15)
    one = SlowdownLaw.fit([1] * 3, [""] * 3, [2, 2, 2], [1, 1, 1])
    assert one.ratio(4) == 2  # a single number of CPUs tells no power


def test_a_host_with_two_numbers_of_cpus_has_a_line_of_its_own() -> None:
    law = SlowdownLaw.fit(
        ([1] * 3 + [2] * 3) * 2, ["g"] * 6 + ["h"] * 6,
        [2] * 3 + [1] * 3 + [1] * 3 + [0.5] * 3, [1] * 12,
    )  # fmt: skip
    assert law.ratio(4, "g") == pytest.approx(0.5)
    assert law.ratio(4, "h") == pytest.approx(0.25)
