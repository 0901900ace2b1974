"""``voxcast replay HISTORY``: cost of request methods, replayed on held-out runs."""

from __future__ import annotations

import json
import logging
import math
import textwrap
from typing import Any

from voxcast.cli.history_options import add_history_argument, add_where_argument
from voxcast.cli.replay_meaning import meaning, titles
from voxcast.cli.shared_options import duration_s
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ConfigError
from voxcast.quantities import format_seconds
from voxcast.text_table import text_table

WIDTH = 100
LOGGER = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Train by folds over subjects, replay requests for held-out runs, and print their cost."""
    parser = VerbParser(prog="voxcast replay", description=__doc__)
    add_history_argument(parser)
    parser.add_argument("--app", action="append", default=[], help="application (default: all)")
    add_where_argument(parser)
    parser.add_argument(
        "--labels", metavar="NAME,NAME",
        help="labels of imported runs that are features (default: all known before a run)",
    )  # fmt: skip
    parser.add_argument("--alpha", type=float, default=1.0, help="price of a requested second (1)")
    parser.add_argument("--beta", type=float, default=0.0, help="price of a used second (0)")
    parser.add_argument(
        "--gamma", default="0", metavar="S|median", help="price of each request (0), in seconds"
    )
    parser.add_argument(
        "--site-default", type=duration_s, default="1h", metavar="TIME",
        help="default request of the site (1h)",
    )  # fmt: skip
    parser.add_argument("--wait-alpha", type=float, default=0.0, metavar="A",
                        help="a request of length t waits A t + G (0)")  # fmt: skip
    parser.add_argument("--wait-gamma", type=duration_s, default="0s", metavar="G",
                        help="see --wait-alpha (0s)")  # fmt: skip
    parser.add_argument("--folds", type=int, default=5, help="number of folds over subjects (5)")
    parser.add_argument("--trials", type=int, default=3, help="trials per family in each fold (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if args.folds < 2 or args.trials < 1:
        raise ConfigError("--folds must be at least 2 and --trials at least 1", "voxcast replay")
    if args.seed < 0:
        raise ConfigError("must not be negative", "--seed")
    gamma = _gamma(args.gamma)
    if not args.site_default > 0:
        raise ConfigError("must be above 0", "--site-default")
    if not (math.isfinite(args.wait_alpha) and args.wait_alpha >= 0):
        raise ConfigError(
            f"must be finite and not negative, not {args.wait_alpha}", "--wait-alpha"
        )

    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.site import Waiting
    from voxcast.evaluation import replayed_requests
    from voxcast.evaluation.history_table import history_table
    from voxcast.log import progress
    from voxcast.runs.store import open_history
    from voxcast.runs.table import runs_of_apps, runs_where

    CostModel(args.alpha, args.beta, 0.0 if isinstance(gamma, str) else gamma)  # checks them
    history = open_history(args.history)
    runs = runs_where(runs_of_apps(history.runs, args.app, args.history[0]), args.where)
    labels = None if args.labels is None else [name for name in args.labels.split(",") if name]
    table = history_table(history, runs, labels)
    with progress(total=table["app"].nunique(), desc="replay") as bar:

        def step(app: str) -> None:
            bar.set_postfix_str(app)
            bar.update()

        results = replayed_requests.study(
            table, costs={"cost": (args.alpha, args.beta, gamma)},
            site_default_s=args.site_default, waiting=Waiting(args.wait_alpha, args.wait_gamma),
            folds=args.folds, seed=args.seed, trials=args.trials, on_step=step,
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
    if args.json:
        print(json.dumps(replays, indent=2, allow_nan=False))
    else:
        for app, result in replays.items():
            has_images = bool((runs.loc[runs["app"] == app, "volume_id"] != "").any())
            _show(app, result, has_images=has_images)
    return 0


def _gamma(text: str) -> float | str:
    if text == "median":
        return text
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"must be seconds or `median`, not {text!r}", "--gamma") from None


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
