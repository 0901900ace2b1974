"""Runs that are proposed teach more than others for the same time."""

import numpy as np

from voxcast.models.next_runs import propose


def row(x: float, y: float) -> dict[str, float]:
    return {"header.log_voxels": x, "content.noise_ratio": y}


def test_the_proposal_is_far_from_measured_runs() -> None:
    measured = [row(x, y) for x in (0.0, 0.1) for y in (0.0, 0.1)]
    candidates = [row(0.05, 0.05), row(1.0, 1.0), row(0.0, 0.05)]
    assert propose(measured, candidates, [1.0] * 3, 1)[0].position == 1


def test_an_expensive_run_needs_a_larger_gain() -> None:
    candidates = [row(0.0, 0.0), row(1.0, 1.0)]
    cheap_first = propose([], candidates, [1.0, 100.0], 2)
    assert [proposal.position for proposal in cheap_first] == [0, 1]
    assert [proposal.expected_s for proposal in cheap_first] == [1.0, 100.0]


def test_no_run_or_duplicate_is_proposed_twice() -> None:
    candidates = [row(0.0, 0.0), row(0.0, 0.0), row(1.0, 0.0), row(0.0, 1.0)]
    proposals = propose([], candidates, [1.0] * 4, 3)
    positions = [proposal.position for proposal in proposals]
    assert len(set(positions)) == 3
    assert not {0, 1} <= set(positions)
    assert proposals[0].gain >= proposals[-1].gain > 0
    assert propose([], [], [], 3) == []


def test_proposed_runs_reduce_the_error_more_than_random_ones() -> None:
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (80, 2)) ** 3  # crowded at one corner
    rows = [row(*place) for place in places]
    truth = np.sin(3 * places[:, 0]) + places[:, 1] ** 2

    def error(chosen: list[int]) -> float:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF

        fitted = GaussianProcessRegressor(RBF(0.5), optimizer=None, alpha=1e-6)
        fitted.fit(places[chosen], truth[chosen])
        return float(np.abs(fitted.predict(places) - truth).mean())

    ours = error([proposal.position for proposal in propose([], rows, [1.0] * 80, 8)])
    others = [error(list(rng.permutation(80)[:8])) for _ in range(20)]
    assert ours < np.median(others)
