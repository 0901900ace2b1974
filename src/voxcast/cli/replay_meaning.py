"""The meaning of a replay's costs for the requests of a user, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TRUSTED_PERCENT = 10.0  # difference of the replayed cost from the predicted, to be relied on
CLAIRVOYANT = "clairvoyant"  # which is no possible request
TITLES = {
    "site_default": "the site's default", "laboratory": "mean of the last runs, × 1.5",
    "harp_doubling": "predicted, doubled (HARP)", "population": "optimal for as many CPUs",
    "per_image": "optimal for each image", CLAIRVOYANT: "exactly the time used",
}  # fmt: skip


def titles(*, has_images: bool) -> dict[str, str]:
    """Return the names of the methods of `voxcast.allocation.requests.replay` for users."""
    return TITLES if has_images else {**TITLES, "per_image": "optimal for each run"}


def meaning(app: str, result: Mapping[str, Any], *, has_images: bool) -> Iterator[str]:
    """Yield the meaning of the comparison for the requests of a user, as sentences.

    Parameters
    ----------
    result : mapping
        Of one cost model, see `voxcast.evaluation.replayed_requests.study`.
    has_images : bool
        Whether the runs are on images, which `voxcast requests IMAGE` could be asked about.
    """
    accounts = {name: a for name, a in result["ways"].items() if name != CLAIRVOYANT}
    costs = {name: account["normalised_cost"] for name, account in accounts.items()}
    names = titles(has_images=has_images)
    first, second, *_ = sorted(costs, key=lambda name: costs[name])
    less = 100 * (1 - costs[first] / costs[second])
    yield (
        f"cheapest here: {names[first]}, {less:.1f} % less than the next, {names[second]}; "
        f"{_next_step(first, app, has_images=has_images)}"
    )
    _, high = accounts[first]["normalised_cost_interval"]
    close = [
        names[name] for name in costs
        if name != first and accounts[name]["normalised_cost_interval"][0] <= high
    ]  # fmt: skip
    if close:
        rivals = "; ".join(close)
        yield f"the difference may be chance: its interval overlaps with that of {rivals}"
    unit = "image" if has_images else "run"
    saved = 100 * (1 - costs["per_image"] / costs["population"])
    yield (
        f"one request sequence for each {unit} costs {abs(saved):.1f} % "
        f"{'less' if saved > 0 else 'more'} than one for all {unit}s on as many CPUs"
    )
    over_implied = 100 * (result["over_implied"] - 1)
    if abs(over_implied) < TRUSTED_PERCENT:
        verdict = "can be relied on"
    else:
        verdict = "is " + ("too low" if over_implied > 0 else "too high")
    text = (
        f"it cost {abs(over_implied):.1f} % {'more' if over_implied >= 0 else 'less'} than was "
        f"predicted for these {unit}s"
    )
    if has_images:
        text += f", so the cost that `voxcast requests` prints for an image {verdict}"
    yield text


def _next_step(method: str, app: str, *, has_images: bool) -> str:
    """Return how a user requests by a method."""
    if method == "per_image" and has_images:
        return f"take it from `voxcast requests IMAGE --app {app}`"
    if method == "per_image":
        return (
            "`voxcast requests` makes such a sequence for images only; that for all runs is from "
            f"`voxcast requests HISTORY --app {app} --where cpus=N`"
        )
    if method == "population":
        return f"take it from `voxcast requests HISTORY --app {app} --where cpus=N`"
    if method == "site_default":
        return "keep it, doubled after each request that was too short"
    if method == "laboratory":
        return "request that mean, and 1.5 times as much after each request that was too short"
    predicts = "`voxcast predict`" if has_images else "a model of `voxcast learn TABLE`"
    return (
        f"request the median that {predicts} predicts, doubled after each request that was too "
        "short"
    )
