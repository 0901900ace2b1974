"""Errors and paired differences by hand."""

import numpy as np
import pandas as pd
import pytest

from voxcast.evaluation.scoring import errors, paired
from voxcast.features.rows import SPEED_DEVIATION
from voxcast.laws.intervals import clustered_mean


def test_a_paired_difference_is_over_subjects_and_wider_at_a_higher_confidence() -> None:
    rng = np.random.default_rng(0)
    runs = pd.DataFrame(
        {"cell_key": [f"c{n}" for n in range(40)], "subject": [f"s{n // 2}" for n in range(40)],
         "noisy": False, "cpu_s": 10.0, "cpu_s_median": rng.normal(10, 0.5, 40)}
    )  # fmt: skip
    rival = runs.assign(cpu_s_median=runs["cpu_s_median"] + 1.0).iloc[::-1]
    plain, wide = paired(runs, rival, "cpu_s"), paired(runs, rival, "cpu_s", confidence=0.999)
    shares = 10 * (np.abs(runs["cpu_s_median"] + 1 - 10) - np.abs(runs["cpu_s_median"] - 10))
    mean = clustered_mean(shares, runs["subject"].tolist())
    assert plain["points"] == pytest.approx(mean.value)
    assert plain["interval"] == pytest.approx([mean.low, mean.high])
    assert wide["interval"][0] < plain["interval"][0]
    assert wide["interval"][1] > plain["interval"][1]


def test_errors_are_told_as_measured_and_at_the_usual_speed() -> None:
    # The machine was slower by a quarter during the second run, which explains its time.
    runs = pd.DataFrame(
        {"subject": ["a", "b"], "noisy": False, "cpu_s": [10.0, 12.5], "peak_rss_bytes": 1e9,
         "cpu_s_median": [10.0, 10.0], "peak_rss_bytes_median": 1e9,
         SPEED_DEVIATION: [0.0, np.log(0.8)]}
    )  # fmt: skip
    by_target = errors(runs)
    assert by_target["cpu_s"]["mape"] == pytest.approx(10)
    assert by_target["cpu_s"]["normalised_mape"] == pytest.approx(0)
    assert "normalised_mape" not in by_target["peak_rss_bytes"]
    assert "normalised_mape" not in errors(runs.drop(columns=SPEED_DEVIATION))["cpu_s"]
