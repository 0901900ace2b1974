"""``voxcast requests``: a sequence of requests, each longer than the last, until one suffices.

The distribution of runtimes is a named one (``--law``), that of measured runs (``--history``), or
the champion's prediction for an image (``--image``). The prediction, like the champion's bounds,
is for the longest run of a subject and slightly wider than that of a single run. A request of
length W, of which u is used, costs alpha W + beta u + gamma.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.cli.history_options import HISTORY_HELP, add_where_argument
from voxcast.cli.measured_law import law_of_column, measured_runs
from voxcast.cli.shared_options import add_champion_arguments, champion_of
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError, one_line
from voxcast.quantities import format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from voxcast.allocation.requests.cost_model import CostModel
    from voxcast.allocation.requests.strategies import RequestSequence, Settings
    from voxcast.laws.law import Law

# Upper quantiles to predict; the lower quantiles mirror them.
QUANTILES = (0.6, 0.75, 0.9, 0.95, 0.99)
STATED_QUANTILE = 0.95  # of which the text says whether it is calibrated, as `predict` does
# With fewer calibrated quantiles, uncalibrated ones are used too.
MIN_CALIBRATED = 2
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
        "--between", metavar="LOW,HIGH", help="truncate the distribution; HIGH may be inf"
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

    from voxcast.allocation.requests.cost_model import CostModel
    from voxcast.allocation.requests.discretisation import POINTS
    from voxcast.allocation.requests.strategies import Settings

    cost = CostModel(
        args.alpha, args.beta, args.gamma, args.checkpoint_s or 0.0, args.restart_s or 0.0
    )
    settings = Settings(POINTS if args.points is None else args.points, args.periods)
    law, in_seconds, warnings = _law(args)
    can_checkpoint = args.checkpoint_s is not None
    sequences = _sequences(args.strategy, law, cost, settings, can_checkpoint=can_checkpoint)
    if args.json:
        print(
            json.dumps(
                [_json(sequence, warnings) for sequence in sequences], indent=2, allow_nan=False
            )
        )
    else:
        _show(sequences, format_seconds if in_seconds else lambda x: f"{x:.5g}")
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
    """Return the distribution of runtimes, whether it is in seconds, and what it leaves open."""
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
        from voxcast.laws.named import parse_law

        law, in_seconds = parse_law(args.law), False
    elif args.history is not None:
        runs = measured_runs(args.history, args.app, args.where, args.column)
        law = law_of_column(runs, args.column, args.family, args.history)
        in_seconds = args.column.endswith("_s")
    else:
        (law, warnings), in_seconds = _predicted_law(args), True
    if args.between is not None:
        law = _truncated(law, args.between)
    return law, in_seconds, warnings


def _truncated(law: Law, between: str) -> Law:
    from voxcast.laws.truncated import TruncatedLaw

    try:
        low, high = (float(part) for part in between.split(","))
    except ValueError:
        raise ConfigError(f"must be two numbers, not {between!r}", "--between") from None
    if not law.continuous:
        raise ConfigError("needs a distribution with a density", "--between", "give --family")
    return TruncatedLaw(law, low, high)


def _predicted_law(args: argparse.Namespace) -> tuple[Law, list[str]]:
    """Return the predicted distribution, and why it does not hold as stated; empty if it does."""
    champion = champion_of(args)

    from voxcast.allocation.recommendation import caveats, input_lines
    from voxcast.laws.predicted import PredictedLaw

    configuration = champion.configurations[0]
    rows = champion.request_rows(args.image, [configuration])
    predictions = {quantile: champion.predict(rows, quantile)[0] for quantile in QUANTILES}
    calibrated = {q: row for q, row in predictions.items() if row["calibrated"]}
    warnings = caveats(predictions[STATED_QUANTILE], STATED_QUANTILE)
    if len(calibrated) >= MIN_CALIBRATED:
        predictions = calibrated
    knots = _knots(predictions)
    if warnings and predictions is calibrated:  # then it is for want of subjects
        highest, longest_s = knots[-1]
        extended = f"beyond {format_seconds(longest_s)}, the {100 * highest:g} % quantile"
        warnings = [warnings[0], f"requests {extended}, are extrapolated"]
    if warnings:
        warnings.append("so the normalised cost is an estimate only")
    first = predictions[min(predictions)]
    logger.info(
        "%s, model %s, %s: %s", first["app"], first["family"], configuration.label,
        ", ".join(f"{100 * probability:g} % {format_seconds(s)}" for probability, s in knots),
    )  # fmt: skip
    return PredictedLaw.of(*zip(*knots, strict=True)), [*input_lines(first), *warnings]


def _knots(predictions: dict[float, dict[str, Any]]) -> list[tuple[float, float]]:
    """Return probabilities and runtimes, both increasing, of predictions by upper quantile."""
    below: list[tuple[float, float]] = []
    above: list[tuple[float, float]] = []
    for quantile, row in predictions.items():
        # Quantiles that are not calibrated coincide, or are cut off at the same reach: of equal
        # ones only the innermost is used.
        if not below or row["runtime_s_lower"] < below[0][1]:
            below.insert(0, (1 - quantile, row["runtime_s_lower"]))
        if not above or row["runtime_s_upper"] > above[-1][1]:
            above.append((quantile, row["runtime_s_upper"]))
    return [*below, (0.5, predictions[min(predictions)]["runtime_s_median"]), *above]


def _sequences(
    strategy: str, law: Law, cost: CostModel, settings: Settings, *, can_checkpoint: bool
) -> list[RequestSequence]:
    from voxcast.allocation.requests.strategies import STRATEGIES, request_sequence

    if strategy != "all":
        if strategy in STRATEGIES and STRATEGIES[strategy].checkpoints and not can_checkpoint:
            raise ConfigError("needs --checkpoint-s and --restart-s", strategy)
        return [request_sequence(strategy, law, cost, settings)]
    names = [n for n, s in STRATEGIES.items() if can_checkpoint or not s.checkpoints]
    sequences: list[RequestSequence] = []
    for name in names:
        try:
            sequences.append(request_sequence(name, law, cost, settings))
        except ConfigError as error:  # the other strategies are still computed
            if not sequences and name == names[-1]:
                raise
            logger.warning("skipped: %s", one_line(error))
    if len(names) < len(STRATEGIES):
        omitted = ", ".join(name for name in STRATEGIES if name not in names)
        logger.info(
            "skipped, for jobs that can write a checkpoint; they need --checkpoint-s and "
            "--restart-s: %s", omitted,
        )  # fmt: skip
    return sequences


def _json(sequence: RequestSequence, warnings: Sequence[str]) -> dict[str, Any]:
    requests: list[Any] = list(sequence.lengths)
    if sequence.checkpoints is not None:
        requests = [
            {"request": length, "milestone": milestone, "checkpoint": checkpoint}
            for length, milestone, checkpoint in zip(
                sequence.lengths, sequence.milestones, sequence.checkpoints, strict=True
            )
        ]
    return {
        "strategy": sequence.strategy,
        "sequence": requests,
        "expected_cost": sequence.expected_cost,
        "normalised_cost": sequence.normalised_cost,
        "notes": [*sequence.notes, *warnings],
    }


def _show(sequences: list[RequestSequence], format_length: Callable[[float], str]) -> None:
    sequences = sorted(sequences, key=lambda sequence: sequence.expected_cost)
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
