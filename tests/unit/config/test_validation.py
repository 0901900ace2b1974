"""Rules of single values."""

import pytest

from voxcast.config.schema import between


@pytest.mark.parametrize(("value", "holds"), [(0.0, False), (1e-9, True), (1.0, False)])
def test_an_open_interval_has_no_ends(value: float, holds: bool) -> None:
    assert between(0, 1).holds(value) == holds
