"""The slowdown law by hand."""

import pytest

from voxcast.models.slowdown import SlowdownLaw


def test_slowdown_falls_back_to_coarser_groups() -> None:
    law = SlowdownLaw.fit(
        ["a"] * 6, [1, 1, 1, 2, 2, 2], ["h"] * 6, [1, 1, 1, 3, 3, 3], [1, 1, 1, 6, 6, 6]
    )
    assert law.ratio("a", 1, "h") == 1
    assert law.ratio("a", 2, "elsewhere") == 0.5
    assert law.ratio("a", 8) == pytest.approx(0.125)  # by the power through 1 and 2 CPUs
    assert law.ratio("unheard", 1) == pytest.approx(0.75)


def test_more_cpus_never_take_longer_than_measured_nor_less_cpu_time() -> None:
    def law(wall_of_two: float) -> SlowdownLaw:
        return SlowdownLaw.fit(
            ["a"] * 6, [1] * 3 + [2] * 3, [""] * 6, [1] * 3 + [wall_of_two] * 3, [1] * 6
        )

    assert law(1.5).ratio("a", 8) == pytest.approx(1.5)
    assert law(0.3).ratio("a", 4) == pytest.approx(0.15)
    one = SlowdownLaw.fit(["a"] * 3, [1] * 3, [""] * 3, [2, 2, 2], [1, 1, 1])
    assert one.ratio("a", 4) == 2  # a single number of CPUs tells no power
