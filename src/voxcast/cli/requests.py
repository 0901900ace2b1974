"""``voxcast requests``: a sequence of requests, each longer than the last, until one suffices.

The distribution of runtimes is a named one (``--law``), measured runs (``--history``), or
the champion's prediction for an image (``--image``). The prediction, like the champion's bounds,
is for the longest run of a subject and slightly wider than for a single run. A request of
length W with u of it used costs alpha W + beta u + gamma.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.history_options import HISTORY_HELP, add_where_argument
from voxcast.cli.measured_law import law_of_column, measured_runs
from voxcast.cli.shared_options import add_champion_arguments, champion_of
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.quantities import format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from voxcast.allocation.requests.strategies import RequestSequence
    from voxcast.laws.families import Law

PRINTED_REQUESTS = 5

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print the sequence of one strategy or of all, with its exact expected cost."""
    parser = VerbParser(
        prog="voxcast requests", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--law", metavar="LAW", help="for example 'lognormal(3,0.5)'")
    source.add_argument(
        "--history", type=Path, metavar="HISTORY", help=f"{HISTORY_HELP}, or a CSV table of runs"
    )
    source.add_argument("--image", type=Path, metavar="IMAGE", help="predict with the champion")
    parser.add_argument(
        "--column", default="runtime_s", help="column of --history (default runtime_s)"
    )
    parser.add_argument(
        "--family",
        metavar="NAME",
        help="fit this family, or `best`, to --history (default: the empirical distribution)",
    )
    parser.add_argument(
        "--alpha", type=float, default=1.0, help="price of requested time (default 1)"
    )
    parser.add_argument("--beta", type=float, default=0.0, help="price of used time (default 0)")
    parser.add_argument(
        "--gamma", type=float, default=0.0, help="price of each request (default 0)"
    )
    parser.add_argument(
        "--checkpoint-s", type=float, metavar="C", help="duration of writing a checkpoint"
    )
    parser.add_argument("--restart-s", type=float, metavar="R", help="duration of a restart")
    parser.add_argument("--strategy", default="all", metavar="NAME|all", help=_strategy_help())
    parser.add_argument(
        "--points", type=int, metavar="N", help="points of a discretisation (default 1000)"
    )
    parser.add_argument(
        "--periods",
        type=int,
        metavar="N",
        help="number of periods of a periodic strategy (default: the best)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_where_argument(parser)
    add_champion_arguments(parser)
    args = parser.parse_args(argv)
    if (args.checkpoint_s is None) != (args.restart_s is None):
        raise ConfigError("must be given together", "--checkpoint-s and --restart-s")

    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.requests.programme import POINTS
    from voxcast.allocation.requests.strategies import (
        ALL,
        CHECKPOINTING,
        Settings,
        alternatives,
    )

    cost = CostModel(
        args.alpha, args.beta, args.gamma, args.checkpoint_s or 0.0, args.restart_s or 0.0
    )
    law, in_seconds, warnings = _law(args)
    format_length = format_seconds if in_seconds else "{:.5g}".format
    points = POINTS if args.points is None else args.points
    settings = Settings(points, args.periods, format_length)
    can_checkpoint = args.checkpoint_s is not None
    sequences, refused = alternatives(
        args.strategy, law, cost, settings, can_checkpoint=can_checkpoint
    )
    for reason in refused:
        logger.warning("skipped: %s", reason)
    if args.strategy == ALL and not can_checkpoint:
        logger.info(
            "skipped, for jobs that can write a checkpoint; they need --checkpoint-s and "
            "--restart-s: %s", ", ".join(CHECKPOINTING),
        )  # fmt: skip
    if args.json:
        content = [sequence.as_json(warnings) for sequence in sequences]
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show(sequences, format_length)
        for warning in warnings:
            print(f"  {warning}")
    return 0


def _strategy_help() -> str:
    """Return the meaning of each strategy, a line for each."""
    from voxcast.allocation.requests.strategies import STRATEGIES

    lines = (
        f"  {name}: {s.meaning}" + " (needs --checkpoint-s)" * s.checkpoints
        for name, s in STRATEGIES.items()
    )
    return "\n".join(("strategy (default all, the cheapest first):", *lines))


def _law(args: argparse.Namespace) -> tuple[Law, bool, list[str]]:
    """Return the distribution of runtimes, whether it is in seconds, and its caveats."""
    for name, default in (("column", "runtime_s"), ("family", None), ("where", [])):
        if getattr(args, name) != default and args.history is None:
            raise ConfigError("needs --history", f"--{name}")
    if args.parameters and args.image is None:
        raise ConfigError("needs --image", "--parameter")
    if args.app is not None and args.law is not None:
        raise ConfigError("needs --history or --image", "--app")
    law: Law
    warnings: list[str] = []
    if args.law is not None:
        from voxcast.laws.families import parse_law

        law, in_seconds = parse_law(args.law), False
    elif args.history is not None:
        runs = measured_runs(args.history, args.app, args.where, args.column)
        law = law_of_column(runs, args.column, args.family, args.history)
        in_seconds = args.column.endswith("_s")
    else:
        (law, warnings), in_seconds = _predicted_law(args), True
    return law, in_seconds, warnings


def _predicted_law(args: argparse.Namespace) -> tuple[Law, list[str]]:
    """Return the predicted distribution, and why it does not hold as stated; empty if it does."""
    champion = champion_of(args)

    from voxcast.allocation.requests.per_image import QUANTILES, PredictedRuntime

    configuration = champion.configurations[0]
    rows = champion.request_rows(args.image, [configuration])
    runtime = PredictedRuntime.of({q: champion.predict(rows, q)[0] for q in QUANTILES})
    logger.info(
        "%s, model %s, %s: %s",
        runtime.prediction["app"], runtime.prediction["family"], configuration.label,
        ", ".join(f"{100 * level:g} % {format_seconds(s)}" for level, s in runtime.knots),
    )  # fmt: skip
    return runtime.law, list(runtime.notes)


def _show(computed: Sequence[RequestSequence], format_length: Callable[[float], str]) -> None:
    sequences = sorted(computed, key=lambda sequence: sequence.expected_cost)
    rows = [("strategy", "normalised", "cost", "requests (* ends with a checkpoint)")]
    for sequence in sequences:
        lengths = sequence.lengths
        flags = sequence.checkpoints or (False,) * len(lengths)
        requests = [
            format_length(length) + "*" * flag
            for length, flag in zip(lengths[:PRINTED_REQUESTS], flags, strict=False)
        ]
        if len(lengths) > PRINTED_REQUESTS:
            requests.append(f"… ({len(lengths)} in all)")
        normalised, cost = f"{sequence.normalised_cost:.4f}", f"{sequence.expected_cost:.5g}"
        rows.append((sequence.strategy, normalised, cost, ", ".join(requests)))
    print(text_table(rows, "<>><"))
    print("  normalised: the cost over that of knowing the runtime beforehand; 1 is the least")
    if len(sequences) > 1:
        for line in _choice_lines(sequences, format_length):
            print(line)


def _choice_lines(
    sequences: list[RequestSequence], format_length: Callable[[float], str]
) -> Iterator[str]:
    """Yield which sequence to take, and how it is used; the cheapest is the first."""
    cheapest = sequences[0]
    equal = [s.strategy for s in sequences[1:] if s.lengths == cheapest.lengths]
    same = f" ({', '.join(equal)} {'is' if len(equal) == 1 else 'are'} the same)" if equal else ""
    first, *others = (format_length(length) for length in cheapest.lengths)
    use = f"request {first}"
    if others:
        use += f", {others[0]} if that was too short" + ", and so on" * (len(others) > 1)
    yield f"  take the cheapest, {cheapest.strategy}{same}: {use}"
    yield "  what the names mean: `voxcast requests --help`"
