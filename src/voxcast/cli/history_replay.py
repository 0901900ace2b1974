"""Ways of requesting, replayed on held-out runs, for ``voxcast history replay``."""

from __future__ import annotations

import json
import logging
import math
import textwrap
from typing import TYPE_CHECKING, Any

from voxcast.cli import options
from voxcast.cli.replay_meaning import meaning, titles
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.quantities import format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    known = None if labels is None else [name for name in labels.split(",") if name]
    table = history_table(history, runs, known)
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
