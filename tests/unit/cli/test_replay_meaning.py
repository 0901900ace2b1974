"""What `voxcast replay` makes of its table: the cheapest row, and how to request by it."""

import pytest

from voxcast.cli.history_replay import CLAIRVOYANT, meaning


def result(**costs: float) -> dict[str, object]:
    """Return a replay in which every interval is 0.1 wide on either side."""
    ways = {
        name: {"normalised_cost": cost, "normalised_cost_interval": (cost - 0.1, cost + 0.1)}
        for name, cost in costs.items()
    }
    ways[CLAIRVOYANT] = {"normalised_cost": 1.0, "normalised_cost_interval": (1.0, 1.0)}
    return {"ways": ways, "over_implied": 1.3}


COSTS = {
    "site_default": 3.0, "laboratory": 3.0, "harp_doubling": 3.0, "population": 2.5,
    "per_image": 2.4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("cheapest", "step"),
    [
        ("site_default", "cheapest here: the site's default, 16.7 % less than the next, optimal"),
        ("laboratory", "request that mean, and 1.5 times as much after"),
        ("harp_doubling", "that `voxcast predict` predicts, doubled after"),
        ("population", "take it from `voxcast requests HISTORY --app recon --where"),
        ("per_image", "take it from `voxcast requests IMAGE --app recon`"),
    ],
)
def test_the_cheapest_row_of_all_is_the_one_to_take(cheapest: str, step: str) -> None:
    first, *others = meaning("recon", result(**{**COSTS, cheapest: 2.0}), has_images=True)
    assert step in first
    assert ("requests IMAGE" in first) == (cheapest == "per_image")
    assert "so the cost that `voxcast requests` prints for an image is too low" in others[-1]
    assert not any("by chance" in text for text in others)


@pytest.mark.parametrize("cheapest", COSTS)
def test_runs_without_images_are_not_sent_to_an_image(cheapest: str) -> None:
    texts = list(meaning("recon", result(**{**COSTS, cheapest: 2.0}), has_images=False))
    assert not any("requests IMAGE" in text for text in texts)
    assert not any("each image" in text for text in texts)


def test_intervals_that_overlap_are_said() -> None:
    texts = list(meaning("recon", result(**COSTS), has_images=True))
    assert texts[1] == (
        "the difference may be chance: its interval overlaps with that of optimal for as many CPUs"
    )
