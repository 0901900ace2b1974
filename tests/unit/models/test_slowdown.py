"""The slowdown law by hand."""

import pytest

from voxcast.models.slowdown import SlowdownLaw


def test_slowdown_falls_back_to_coarser_groups() -> None:
    law = SlowdownLaw.fit(
        ["a"] * 6, [1, 1, 1, 2, 2, 2], ["h"] * 6, [1, 1, 1, 3, 3, 3], [1, 1, 1, 6, 6, 6]
    )
    assert law.ratio("a", 1, "h") == 1
    assert law.ratio("a", 2, "elsewhere") == 0.5
    assert law.ratio("a", 8) == pytest.approx(0.75)
    assert law.ratio("unheard", 1) == pytest.approx(0.75)
