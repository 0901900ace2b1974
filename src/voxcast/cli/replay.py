"""``voxcast replay HISTORY``: what ways of asking would have cost on runs held out."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from voxcast.errors import EXIT_BAD_INPUT, ConfigError, TableError
from voxcast.quantities import format_seconds, parse_seconds

WAYS = {
    "site_default": "the site's default", "laboratory": "mean of the last runs, × 1.5",
    "harp_doubling": "predicted, doubled (HARP)", "population": "optimal for all images alike",
    "per_image": "optimal for each image", "clairvoyant": "who knows beforehand",
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Learn by folds over subjects, ask for the runs held out, and print what it cost."""
    parser = argparse.ArgumentParser(prog="voxcast replay", description=__doc__)
    parser.add_argument("history", type=Path, metavar="HISTORY", help="a folder of data/history")
    parser.add_argument("--app", action="append", help="application (default: all)")
    parser.add_argument("--alpha", type=float, default=1.0, help="price of a second asked for (1)")
    parser.add_argument("--beta", type=float, default=0.0, help="price of a second used (0)")
    parser.add_argument(
        "--gamma", default="0", metavar="S|median", help="price of each request (0), in seconds"
    )
    parser.add_argument(
        "--site-default", default="1h", metavar="TIME", help="what the site gives (1h)"
    )
    parser.add_argument("--wait-alpha", type=float, default=0.0, metavar="A",
                        help="a request of t waits A t + G (0)")  # fmt: skip
    parser.add_argument("--wait-gamma", default="0s", metavar="G", help="see --wait-alpha (0s)")
    parser.add_argument("--folds", type=int, default=5, help="over subjects (5)")
    parser.add_argument("--trials", type=int, default=3, help="of each family, in each fold (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if args.folds < 2 or args.trials < 1:
        raise ConfigError("--folds must be at least 2 and --trials at least 1", "voxcast replay")
    if args.seed < 0:
        raise ConfigError("must not be negative", "--seed")
    gamma = _gamma(args.gamma)
    site_default_s, wait_gamma_s = parse_seconds(args.site_default), parse_seconds(args.wait_gamma)
    if not site_default_s > 0:
        raise ConfigError("must be above 0", "--site-default")
    if not (math.isfinite(args.wait_alpha) and args.wait_alpha >= 0):
        raise ConfigError(
            f"must be finite and not negative, not {args.wait_alpha}", "--wait-alpha"
        )

    from tqdm import tqdm

    from voxcast.allocation.requests.cost_model import CostModel
    from voxcast.allocation.waiting import Waiting
    from voxcast.studies import replayed_requests
    from voxcast.studies.recorded_table import recorded_table

    CostModel(args.alpha, args.beta, 0.0 if isinstance(gamma, str) else gamma)  # checks them
    if not args.history.is_dir():
        raise TableError("is no recorded history", args.history, "see data/history")
    table = recorded_table([args.history])
    if args.app:
        unknown = sorted(set(args.app) - set(table["app"]))
        if unknown:
            known = f"it has {', '.join(sorted(table['app'].unique()))}"
            raise TableError(f"has no runs of {', '.join(unknown)}", args.history, known)
        table = table[table["app"].isin(args.app)].reset_index(drop=True)
    with tqdm(total=table["app"].nunique(), desc="replay", disable=None, delay=2) as bar:

        def step(app: str) -> None:
            bar.set_postfix_str(app)
            bar.update()

        found = replayed_requests.study(
            table, costs={"cost": (args.alpha, args.beta, gamma)},
            site_default_s=site_default_s, waiting=Waiting(args.wait_alpha, wait_gamma_s),
            folds=args.folds, seed=args.seed, trials=args.trials, on_step=step,
        )  # fmt: skip
    for app, own in found.items():
        if "not_measurable" in own:
            print(f"voxcast: {app} is not replayed: {own['not_measurable']}", file=sys.stderr)
    found = {
        app: {"sd_log": own["sd_log"], **own["cost"]}
        for app, own in found.items()
        if "cost" in own
    }
    if not found:
        return EXIT_BAD_INPUT
    if args.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        for app, own in found.items():
            _show(app, own)
    return 0


def _gamma(text: str) -> float | str:
    if text == "median":
        return text
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"must be seconds or `median`, not {text!r}", "--gamma") from None


def _show(app: str, own: dict[str, Any]) -> None:
    runs = own["ways"]["clairvoyant"]["runs"]
    print(f"{app}: {runs} runs held out, standard deviation of logarithms {own['sd_log']:.2f}")
    print(
        f"  {'':30}{'normalised cost':>26}{'killed':>8}{'core h':>8}{'GB h':>9}{'done after':>12}"
    )
    for way, title in WAYS.items():
        said = own["ways"][way]
        low, high = said["normalised_cost_interval"]
        cost = f"{said['normalised_cost']:.3f} ({low:.3f} to {high:.3f})"
        print(
            f"  {title:30}{cost:>26}{said['failures']:>8}{said['waste_core_h']:>8.2f}"
            f"{said['waste_gb_h']:>9.1f}{format_seconds(said['turnaround_s']):>12}"
        )
    print(
        f"  by image {own['over_implied']:.3f} times what its own laws imply; of the excess over "
        f"the clairvoyant {100 * own['excess_left']:.0f} % is left"
    )
