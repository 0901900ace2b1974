"""Groups of similar requests: complete, no tighter than needed, and within the hard limits."""

import numpy as np
import pytest

from voxcast.allocation.offers import HardLimits, Policy
from voxcast.allocation.recommendation import ImagePredictions, Recommendation
from voxcast.allocation.site import Cluster, NodeType, Partition, Prices, Waiting
from voxcast.jobs.arrays import array_groups
from voxcast.records import Configuration

POLICY = Policy("balanced", 0.95, 0.0, 2.0)


def recommended(runtimes_s: list[float], waiting: Waiting, limits: HardLimits) -> Recommendation:
    site = Cluster(
        "c", (NodeType("n", 8, 64 * 2**30, 0, Prices(), "p"),), (Partition("p", waiting=waiting),),
        walltime_step_s=1.0,
    )  # fmt: skip
    images = [
        ImagePredictions(
            f"{n}.nii.gz",
            [{
                "app": "a", "runtime_s_median": 0.9 * seconds, "runtime_s_upper": seconds,
                "peak_rss_bytes_median": 2e9, "peak_rss_bytes_upper": 3e9,
            }],
        )
        for n, seconds in enumerate(runtimes_s)
    ]  # fmt: skip
    candidates = site.candidates([Configuration("cpu", 1)])
    return Recommendation.of(site, POLICY, limits, candidates, images)


def test_similar_requests_share_one_and_others_do_not() -> None:
    groups = array_groups(recommended([100, 110, 120, 3000, 50], Waiting(), HardLimits()))
    assert [group.images for group in groups] == [(4,), (0, 1, 2), (3,)]
    assert [group.offers.walltime_s[0, 0] for group in groups] == [50, 120, 3000]


@pytest.mark.parametrize("deadline_s", [None, 330.0])
def test_a_group_is_split_where_its_request_would_exceed_the_deadline(
    deadline_s: float | None,
) -> None:
    # A job of 100 s waits 200 s for a request of 100 s, and 240 s for one of 120 s.
    limits = HardLimits(deadline_s)
    recommendation = recommended([100, 110, 120], Waiting(2.0), limits)
    groups = array_groups(recommendation)
    images = [image for group in groups for image in group.images]
    if deadline_s is None:
        assert [group.images for group in groups] == [(0, 1, 2)]
    else:
        # 120 s needs 360 s in all and has no request; 110 s just makes it.
        assert sorted(images) == [0, 1]
        assert all((group.offers.turnaround_bound_s <= deadline_s).all() for group in groups)


def test_no_group_is_longer_than_an_array() -> None:
    runtimes_s = np.linspace(100, 120, 2500).tolist()
    groups = array_groups(recommended(runtimes_s, Waiting(), HardLimits()))
    assert max(len(group.images) for group in groups) <= 1000
    assert sorted(n for group in groups for n in group.images) == list(range(2500))
