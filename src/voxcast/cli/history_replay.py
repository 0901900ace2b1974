"""Ways of requesting, replayed on held-out runs, for ``voxcast history replay``.

The meaning of a replay's costs for the requests of a user, as sentences.
"""

from __future__ import annotations

import json
import logging
import math
import textwrap
from typing import TYPE_CHECKING, Any

from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.quantities import format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


WIDTH = 100
MEDIAN = "median"
LOGGER = logging.getLogger(__name__)


def replay_requests(
    histories: Sequence[Path],
    apps: Sequence[str],
    where: Sequence[str],
    labels: str | None,
    cost: str,
    site_default_s: float,
    waiting: Sequence[float],
    folds: int,
    trials: int,
    *,
    as_json: bool,
) -> int:
    """Train by folds over subjects, replay requests for held-out runs, and print their cost.

    Parameters
    ----------
    cost : str
        ``A,B,C``: prices of requested and used seconds, and of a request; C may be ``median``.
    waiting : sequence of float
        A request of length t waits ``A t + G``.
    """
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.site import Waiting
    from voxcast.evaluation import replayed_requests
    from voxcast.evaluation.history_table import history_table
    from voxcast.log import progress
    from voxcast.runs.store import open_history
    from voxcast.runs.table import runs_of_apps, runs_where

    alpha, beta, gamma = _prices(cost)
    CostModel(alpha, beta, 0.0 if isinstance(gamma, str) else gamma)  # checks them
    history = open_history(histories)
    runs = runs_where(runs_of_apps(history.runs, apps, histories[0]), where)
    names = None if labels is None else [name for name in labels.split(",") if name]
    table = history_table(history, runs, names)
    with progress(total=table["app"].nunique(), desc="replay") as bar:

        def step(app: str) -> None:
            bar.set_postfix_str(app)
            bar.update()

        results = replayed_requests.study(
            table, costs={"cost": (alpha, beta, gamma)},
            site_default_s=site_default_s, waiting=Waiting(*waiting),
            folds=folds, seed=0, trials=trials, on_step=step,
        )  # fmt: skip
    for app, result in results.items():
        if "not_measurable" in result:
            LOGGER.warning("%s is not replayed: %s", app, result["not_measurable"])
    replays = {
        app: {"sd_log": result["sd_log"], **result["cost"]}
        for app, result in results.items()
        if "cost" in result
    }
    if not replays:
        return EXIT_BAD_INPUT
    if as_json:
        print(json.dumps(replays, indent=2, allow_nan=False))
    else:
        for app, result in replays.items():
            has_images = bool((runs.loc[runs["app"] == app, "volume_id"] != "").any())
            _show(app, result, has_images=has_images)
    return 0


def _prices(text: str) -> tuple[float, float, float | str]:
    """Return the prices; that of a request may be the median of the runtimes."""
    start, comma, last = text.rpartition(",")
    if last.strip() == MEDIAN:
        alpha, beta = options.numbers(start, 2, "--cost")
        return alpha, beta, MEDIAN
    alpha, beta, gamma = options.numbers(start + comma + last, 3, "--cost")
    return alpha, beta, gamma


def _show(app: str, result: dict[str, Any], *, has_images: bool) -> None:
    accounts = result["ways"]
    runs = accounts["clairvoyant"]["runs"]
    spread = math.exp(result["sd_log"])
    print(f"{app}: {runs} held-out runs; wall times spread by a factor of {spread:.2f} (1 SD)")
    rows = [
        ("requested", "normalised cost", "killed", "killed core h", "unused GB h", "done after")
    ]
    for method, title in titles(has_images=has_images).items():
        account = accounts[method]
        low, high = account["normalised_cost_interval"]
        cost = f"{account['normalised_cost']:.3f} ({low:.3f} to {high:.3f})"
        waste = (f"{account['waste_core_h']:.2f}", f"{account['waste_gb_h']:.1f}")
        done_after = format_seconds(account["turnaround_s"])
        rows.append((title, cost, str(account["failures"]), *waste, done_after))
    print(text_table(rows, "<>>>>>", indent="  "))
    print("  normalised cost: 1 is the cost of knowing each runtime beforehand; 95 % interval")
    print("  killed: requests that were too short, and the core-hours lost in them")
    for text in meaning(app, result, has_images=has_images):
        lines = textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
        print("\n".join(lines))


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
