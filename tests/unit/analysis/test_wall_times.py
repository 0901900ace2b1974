"""Variation of wall time: the runs that count, the closest distribution, the noise."""

import numpy as np
import pytest

from synthetic_campaign import MACHINE, Campaign
from voxcast.analysis.wall_times import wall_times
from voxcast.report.tables import variations


def campaign(values: np.ndarray, repeats: int = 1) -> Campaign:
    synthetic = Campaign()
    for n, value in enumerate(values):
        for repeat in range(repeats):
            synthetic.run(
                "app", value, value, {}, repeat=repeat, volume_id=f"v{n}", subject=f"{n}"
            )
    return synthetic


def test_a_planted_law_is_recovered_and_repeats_count_once() -> None:
    values = np.random.default_rng(2).lognormal(3.0, 0.5, 100)
    [group] = wall_times(campaign(values, repeats=3).tables()[0])
    assert group.varied.n == 100
    assert group.unit == "volume"
    assert group.varied.tied[0] == "lognormal"
    assert group.bootstrap_p is not None
    assert group.bootstrap_p > 0.05
    assert group.varied.mean == pytest.approx(values.mean(), rel=0.01)
    assert group.noise is not None
    assert 0.7 < group.noise.value < 1.3  # planted at 1 %, where the spread is 50 %


def test_anchors_and_disturbed_runs_are_excluded() -> None:
    synthetic = campaign(np.full(6, 10.0) + np.arange(6))
    synthetic.run("app", 90, 90, {}, repeat=1001, volume_id="v0", subject="0")
    synthetic.run("app", 90, 90, {}, repeat=1, noisy=True, volume_id="v1", subject="1")
    synthetic.run("app", 11, 11, {}, repeat=101, volume_id="v1", subject="1")
    synthetic.run("app", 90, 90, {}, noisy=True, volume_id="v9", subject="9")  # all there is of it
    [group] = wall_times(synthetic.tables()[0])
    assert group.varied.n == 7
    assert sorted(group.values_s)[-2] < 20
    assert max(group.values_s) > 80


def test_scales_allocations_and_machines_are_separate_and_two_groups_are_two_modes() -> None:
    trained = Campaign()
    trained.training()
    trained.training(points=3, gpu=True)
    groups = wall_times(trained.tables()[0])
    assert [(g.configuration.label, g.scale, g.machine == MACHINE) for g in groups] == [
        ("cpu, 1 CPU", "full_scale", True),
        ("cpu, 1 CPU", "scaled_down", True),
        ("cpu, 4 CPUs", "full_scale", False),
        ("gpu, 4 CPUs", "full_scale", False),
    ]
    assert groups[0].unit == "setting"
    assert groups[0].varied.modality.verdict == "two"
    few = [*variations({"few": groups[2]}).rows[0].values()]
    assert few[6:] == ["too few runs", "", "", "too few runs"]
