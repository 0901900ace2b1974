"""``voxcast models diff A B``: in what two versions differ, without judging them."""

from __future__ import annotations

import json
from typing import Any

from voxcast import project
from voxcast.cli.registry_options import action_parser
from voxcast.quantities import counted

MAX_VALUE = 60  # characters of a value that are printed; --json has all


def main(argv: list[str]) -> int:
    """Print the differences between two versions, by application."""
    description = "Print in what two versions differ; `compare` judges them."
    parser = action_parser("diff", description, "one JSON object on stdout")
    parser.add_argument("first", metavar="A", help="a version")
    parser.add_argument("second", metavar="B", help="another version")
    parser.add_argument("--app", help="default: every application that one of them has")
    args = parser.parse_args(argv)
    from voxcast.serving.model_store import ModelStore
    from voxcast.tracking.version_difference import difference

    store = ModelStore.of(project.require(args.project))
    first, second = (store.open(number) for number in (args.first, args.second))
    content = difference(first, second, args.app)
    if args.json:
        print(json.dumps(content, indent=2))
        return 0
    for app, facts in content["apps"].items():
        print(f"{app}: {_summary(facts)}")
        for name, (before, after) in facts.get("fields", {}).items():
            print(f"  {name}: {_value(before)} -> {_value(after)}")
    return 0


def _summary(facts: dict[str, Any]) -> str:
    if "only_in" in facts:
        return f"only in version {facts['only_in']}"
    if "damaged_in" in facts:
        return f"damaged in version {facts['damaged_in']}: {facts['problem']}"
    changes = [
        f"{counted(len(facts[noun + 's'][change]), noun)} {change}"
        for noun in ("run", "subject")
        for change in ("added", "removed")
        if facts[noun + "s"][change]
    ]
    if not changes and not facts["fields"]:
        return "the same"
    return ", ".join(changes) or "learned from the same runs"


def _value(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"
