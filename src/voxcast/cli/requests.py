"""``voxcast requests``: what to ask for, one request after the other until one is enough.

The law of lengths is given (``--law``), that of measured runs (``--history``), or what the
champion predicts for an image (``--image``): like the champion's bounds, that is the law of
subjects' worst runs, a little wider than that of one run. A request of length W in use for u
costs alpha W + beta u + gamma.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.cli.champion import add_arguments, champion
from voxcast.errors import ConfigError, TableError, one_line
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from voxcast.allocation.requests.cost_model import CostModel
    from voxcast.allocation.requests.strategies import RequestSequence, Settings
    from voxcast.laws.law import Law

# Upper levels that the champion is asked for; the lower ones mirror them.
LEVELS = (0.6, 0.75, 0.9, 0.95, 0.99)
# With fewer of them calibrated there is no law to be had but from those that are not.
_LEAST_PROMISED = 2
SHOWN = 5


def main(argv: list[str]) -> int:
    """Print the sequence of a strategy, or of all, with its exact mean cost."""
    parser = argparse.ArgumentParser(
        prog="voxcast requests", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--law", metavar="LAW", help="such as 'lognormal(3,0.5)'")
    source.add_argument("--history", type=Path, metavar="FILE.csv", help="table of runs")
    source.add_argument("--image", type=Path, metavar="IMAGE", help="ask the champion")
    parser.add_argument("--column", default="runtime_s", help="of --history (runtime_s)")
    parser.add_argument(
        "--family",
        metavar="NAME",
        help="fit this to --history, or `best`; else the runs as they are",
    )
    parser.add_argument(
        "--between", metavar="LOW,HIGH", help="cut the law to what is possible; HIGH may be inf"
    )
    parser.add_argument("--alpha", type=float, default=1.0, help="price of what is asked for (1)")
    parser.add_argument("--beta", type=float, default=0.0, help="price of what is used (0)")
    parser.add_argument("--gamma", type=float, default=0.0, help="price of each request (0)")
    parser.add_argument(
        "--checkpoint-s", type=float, metavar="C", help="length of writing a checkpoint"
    )
    parser.add_argument("--restart-s", type=float, metavar="R", help="of going on from one")
    parser.add_argument("--strategy", default="all", metavar="NAME|all", help="(all)")
    parser.add_argument("--points", type=int, metavar="N", help="of a discretisation (1000)")
    parser.add_argument("--periods", type=int, metavar="N", help="of periodic ones (the best)")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_arguments(parser)
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
    law, in_seconds = _law(args)
    can_checkpoint = args.checkpoint_s is not None
    found = _sequences(args.strategy, law, cost, settings, can_checkpoint=can_checkpoint)
    if args.json:
        print(json.dumps([_json(one) for one in found], indent=2, allow_nan=False))
    else:
        _show(found, format_seconds if in_seconds else lambda x: f"{x:.5g}")
    return 0


def _law(args: argparse.Namespace) -> tuple[Law, bool]:
    """Return the law of lengths, and whether it is known to be in seconds."""
    for name, wanted in (("column", "history"), ("family", "history"), ("app", "image")):
        default = "runtime_s" if name == "column" else None
        if getattr(args, name) != default and getattr(args, wanted) is None:
            raise ConfigError(f"goes with --{wanted}", f"--{name}")
    law: Law
    if args.law is not None:
        from voxcast.laws.named import parse_law

        law, in_seconds = parse_law(args.law), False
    elif args.history is not None:
        law, in_seconds = _measured(args), args.column.endswith("_s")
    else:
        law, in_seconds = _predicted(args), True
    if args.between is not None:
        law = _cut(law, args.between)
    return law, in_seconds


def _cut(law: Law, between: str) -> Law:
    from voxcast.laws.truncated import TruncatedLaw

    try:
        low, high = (float(part) for part in between.split(","))
    except ValueError:
        raise ConfigError(f"must be two numbers, not {between!r}", "--between") from None
    if not law.continuous:
        raise ConfigError("needs a law with a density", "--between", "give a --family")
    return TruncatedLaw(law, low, high)


def _measured(args: argparse.Namespace) -> Law:
    from voxcast.features.any_table import COMPLETED, OUTCOME, read_csv
    from voxcast.laws.distributions import FAMILIES
    from voxcast.laws.empirical import EmpiricalLaw
    from voxcast.laws.fits import rank_fits

    table = read_csv(args.history)
    if args.column not in table:
        names = ", ".join(map(str, table.columns[:20]))
        raise TableError(f"has no column {args.column}, but {names}", args.history)
    runs = table[table[OUTCOME] == COMPLETED] if OUTCOME in table else table
    known = runs[args.column].dropna()
    if len(known) < len(table):
        left = f"{len(known)} of {len(table)} runs, those completed with a {args.column}"
        print(f"voxcast: {left}", file=sys.stderr)
    try:
        values = known.to_numpy(dtype=float)
    except ValueError:
        raise TableError(f"{args.column} holds no numbers", args.history) from None
    if not len(values) or not (values > 0).all() or not math.isfinite(values.max()):
        raise TableError(f"{args.column} must hold positive finite numbers", args.history)
    if args.family is None:
        return EmpiricalLaw(values)
    if args.family not in (*FAMILIES, "best"):
        raise ConfigError("unknown family", args.family, f"known are {', '.join(FAMILIES)}, best")
    # Of the normal law a length below 0 could be drawn.
    families = [name for name, law in FAMILIES.items() if law.positive]
    fit = rank_fits(values, families if args.family == "best" else [args.family])[0]
    numbers = ", ".join(f"{name} {value:.5g}" for name, value in fit.parameters.items())
    print(f"voxcast: {fit.family} ({numbers}), KS {fit.ks:.3f}, n {fit.n}", file=sys.stderr)
    return fit.law


def _predicted(args: argparse.Namespace) -> Law:
    asked = champion(args)

    from voxcast.cli.advice import remarks
    from voxcast.laws.predicted import PredictedLaw

    allocation = asked.configurations[0]
    rows = asked.questions(args.image, [allocation])
    answers = {level: asked.answer(rows, level, False)[0] for level in LEVELS}
    promised = {level: own for level, own in answers.items() if own["calibrated"]}
    if len(promised) < _LEAST_PROMISED:
        level, answer = next(one for one in answers.items() if one[0] not in promised)
        for remark in remarks(answer, level):
            print(f"voxcast: {remark}", file=sys.stderr)
    else:
        answers = promised
    knots = _knots(answers)
    answer = answers[min(answers)]
    told = ", ".join(f"{100 * level:g} % {format_seconds(value)}" for level, value in knots)
    print(
        f"voxcast: {answer['app']} by {answer['family']} on {allocation.label}: {told}",
        file=sys.stderr,
    )
    return PredictedLaw.of(*zip(*knots, strict=True))


def _knots(answers: dict[float, dict[str, Any]]) -> list[tuple[float, float]]:
    """Return levels and their runtimes, both rising, from answers by their upper level."""
    below: list[tuple[float, float]] = []
    above: list[tuple[float, float]] = []
    for level, answer in answers.items():
        # All levels that a history is too small for get one answer; the innermost keeps it.
        if not below or answer["runtime_s_lower"] < below[0][1]:
            below.insert(0, (1 - level, answer["runtime_s_lower"]))
        if not above or answer["runtime_s_upper"] > above[-1][1]:
            above.append((level, answer["runtime_s_upper"]))
    return [*below, (0.5, answers[min(answers)]["runtime_s_median"]), *above]


def _sequences(
    strategy: str, law: Law, cost: CostModel, settings: Settings, *, can_checkpoint: bool
) -> list[RequestSequence]:
    from voxcast.allocation.requests.strategies import STRATEGIES, request_sequence

    if strategy != "all":
        if strategy in STRATEGIES and STRATEGIES[strategy].checkpoints and not can_checkpoint:
            raise ConfigError("needs --checkpoint-s and --restart-s", strategy)
        return [request_sequence(strategy, law, cost, settings)]
    names = [name for name, own in STRATEGIES.items() if can_checkpoint or not own.checkpoints]
    found: list[RequestSequence] = []
    for name in names:
        try:
            found.append(request_sequence(name, law, cost, settings))
        except ConfigError as error:  # the others are answered all the same
            if not found and name == names[-1]:
                raise
            print(f"voxcast: left out: {one_line(error)}", file=sys.stderr)
    if len(names) < len(STRATEGIES):
        rest = ", ".join(name for name in STRATEGIES if name not in names)
        print(f"voxcast: without --checkpoint-s and --restart-s no {rest}", file=sys.stderr)
    return found


def _json(one: RequestSequence) -> dict[str, Any]:
    sequence: list[Any] = list(one.lengths)
    if one.checkpoints is not None:
        sequence = [
            {"request": length, "milestone": milestone, "checkpoint": checkpoint}
            for length, milestone, checkpoint in zip(
                one.lengths, one.milestones, one.checkpoints, strict=True
            )
        ]
    return {
        "strategy": one.strategy,
        "sequence": sequence,
        "expected_cost": one.expected_cost,
        "normalised_cost": one.normalised_cost,
        "notes": list(one.notes),
    }


def _show(found: list[RequestSequence], write: Callable[[float], str]) -> None:
    print(f"{'strategy':18}{'normalised':>11}{'cost':>12}  requests (* ends with a checkpoint)")
    for one in found:
        flags = one.checkpoints or (False,) * len(one.lengths)
        asked = [
            write(length) + "*" * flag
            for length, flag in zip(one.lengths[:SHOWN], flags, strict=False)
        ]
        if len(one.lengths) > SHOWN:
            asked.append(f"… ({len(one.lengths)} in all)")
        print(
            f"{one.strategy:18}{one.normalised_cost:11.4f}{one.expected_cost:12.5g}  "
            f"{', '.join(asked)}"
        )
