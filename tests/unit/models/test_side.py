"""Bounds past one end of a feature, from the subjects at that end."""

import json

import numpy as np
import pytest

from voxcast.models.conformal import Calibrator
from voxcast.models.distance import Distance
from voxcast.models.side import UNCERTAIN_POWER, Side, growth_with_distance, margins

NAMES = [str(n) for n in range(40)]


def side(farthest: float = 1.0) -> Side:
    logs = np.linspace(-0.2, 0.2, 40)
    calibrator = Calibrator.fit(logs, np.zeros(40), NAMES)
    return Side({"cpu_s": calibrator}, {"cpu_s": 2.0}, farthest)


def test_offsets_widen_with_distance_in_the_target_that_grows() -> None:
    factors = side().widths(np.array([0.0, 0.5, 2.0]), ("cpu_s", "peak_rss_bytes"))
    assert factors[:, 0].tolist() == [1.0, 2.0, 5.0]
    assert (factors[:, 1] == 1.0).all()


def test_farther_than_any_subject_the_power_of_the_law_is_uncertain() -> None:
    far = [Distance({"size above": length}, 0.1) for length in (0.5, 1.0, 3.0)]
    assert margins(far, {"size above": side()}).tolist() == pytest.approx(
        [0.1, 0.1, 0.1 + 2 * UNCERTAIN_POWER]
    )
    untested = [0.1 + UNCERTAIN_POWER * length for length in (0.5, 1.0, 3.0)]
    assert margins(far, {"size below": side()}).tolist() == pytest.approx(untested)


@pytest.mark.parametrize("slope", [0.0, 0.5])
def test_errors_that_grow_with_distance_are_told_from_those_that_do_not(slope: float) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.uniform(0, 1, 40)
    growths = [
        growth_with_distance((0.1 + slope * lengths) * rng.uniform(0.5, 1.5, 40), lengths, NAMES)
        for _ in range(200)
    ]
    is_found = np.mean(np.array(growths) > 0)
    if slope:
        assert is_found == 1.0
        assert np.median(growths) == pytest.approx(slope / 0.1, rel=0.3)
    else:
        assert is_found < 0.1  # 5 % by chance


def test_few_subjects_do_not_tell_how_errors_grow() -> None:
    lengths = np.linspace(0, 1, 10)
    errors = 0.1 + 0.5 * lengths
    assert growth_with_distance(errors, lengths, NAMES[:10]) > 0
    assert growth_with_distance(errors[:9], lengths[:9], NAMES[:9]) == 0.0


def test_a_side_is_read_as_it_was_written() -> None:
    written = side()
    assert Side.from_json(json.loads(json.dumps(written.to_json(), allow_nan=False))) == written
