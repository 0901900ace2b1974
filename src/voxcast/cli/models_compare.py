"""``voxcast models compare A B``: two versions, judged on the same held-out subjects."""

from __future__ import annotations

import json
from typing import Any

from voxcast import project
from voxcast.cli.registry_options import action_parser


def main(argv: list[str]) -> int:
    """Compare two versions."""
    parser = action_parser(
        "compare", "Compare two versions on the same held-out subjects on record."
    )
    parser.add_argument("first", metavar="A", help="a version")
    parser.add_argument("second", metavar="B", help="another version")
    parser.add_argument("--app", help="default: every application that both have")
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    from voxcast.serving.model_store import ModelStore
    from voxcast.tracking.versions import bundles_to_compare, compare_bundles

    numbers = args.first, args.second
    bundles = bundles_to_compare(ModelStore.of(folder), numbers, args.app)
    from voxcast import config
    from voxcast.models.selection.validations import validations

    cfg = config.load(folder / config.PARAMS_FILE)
    by_app = validations(folder, cfg.tune.folds, cfg.tune.seed)
    receipt = compare_bundles(folder, by_app, numbers, bundles, args.app)
    if args.json:
        print(json.dumps(receipt, indent=2))
        return 0
    for app, comparison in receipt["apps"].items():
        print(f"{app}: {_compared(comparison, args.first, args.second)}")
    return 0


def _compared(comparison: dict[str, Any] | None, first: str, second: str) -> str:
    from voxcast.models.selection.promotion_rule import held_out

    if comparison is None:
        return "no subject is on record on which both could be judged"
    if "same_forecaster" in comparison:
        return "both versions have the same forecaster"
    errors = [comparison[name]["value"] for name in ("challenger", "champion")]
    gain = comparison["gain"]
    text = (
        f"mean log error {errors[0]:.4f} of version {first}, {errors[1]:.4f} of version {second}, "
        f"over {held_out(gain['subjects'])}"
    )
    if gain["low"] is None:
        return f"{text}; one subject decides nothing"
    better = first if gain["low"] > 0 else second if gain["high"] < 0 else None
    verdict = "no difference is shown" if better is None else f"version {better} is better"
    return (
        f"{text}; {verdict} (difference {gain['value']:+.4f}, 95 % interval "
        f"{gain['low']:+.4f} to {gain['high']:+.4f})"
    )
