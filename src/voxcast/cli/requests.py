"""What to request: ``voxcast recommend`` for images, ``voxcast requests`` for a sequence.

A sequence of requests is used until one suffices; each is longer than the last.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from voxcast.api.sequences import law_of, source_kind
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ConfigError
from voxcast.quantities import counted, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from voxcast.allocation.requests.strategies import RequestSequence


PRINTED_REQUESTS = 5
LIST = "list"

logger = logging.getLogger(__name__)


def recommend(
    images: Annotated[list[Path], Argument(metavar="IMAGE...", show_default=False)],
    wanted: options.SiteQuestion,
    form: Annotated[
        Literal["text", "sbatch", "csv"],
        Option(
            "--as",
            metavar="text|sbatch|csv",
            help="sbatch: #SBATCH lines for one image; csv: time and memory of the first, second "
            "and third attempt, for workflow engines.",
        ),
    ] = "text",
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Write it to this file.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Recommend the cheapest request of each image that is safe, within deadline and budget.

    Every allocation is shown with its time, memory and cost; those that no other beats in both
    time and cost are marked.
    """
    from voxcast.allocation.recommendation_text import text_lines
    from voxcast.api.plan import Plan

    if form == "csv" and out is None:
        raise ConfigError("is needed for a table", "--out", "give --out FILE.csv")
    recommendation = wanted.question().recommendation(images, with_slurm=form == "sbatch")
    if recommendation is None:
        return EXIT_BAD_INPUT
    plan = Plan(wanted.question(), images, recommendation)
    refused = list(recommendation.without_request())
    if form == "csv" and out is not None and not as_json:
        plan.to_csv(out)
        logger.info("%s: requests of %s", out, counted(len(images) - len(refused), "image"))
    else:
        is_script = form == "sbatch" and not as_json
        lines = [plan.sbatch().rstrip()] if is_script else text_lines(recommendation)
        options.show(recommendation.as_json(), lines, as_json=as_json, out=out)
    if form != "text" or as_json:  # which the text says itself
        for image, reason in refused:
            logger.error("%s: %s", image, reason)
    return 0 if plan.is_complete else EXIT_BAD_INPUT


def requests(
    source: Annotated[
        str,
        Argument(
            metavar="LAW|HISTORY|IMAGE",
            help="a law such as 'lognormal(3,0.5)'; a folder or CSV table of runs; or an image, "
            "whose runtime the model predicts",
            show_default=False,
        ),
    ],
    wanted: options.ModelQuestion,
    strategy: Annotated[
        str,
        Option("--strategy", metavar="NAME", help="One strategy, or all; `list` explains them."),
    ] = "all",
    cost: Annotated[
        str,
        Option(
            "--cost", metavar="A,B,C", help="Price of requested and of used time, and per request."
        ),
    ] = "1,0,0",
    checkpoint: Annotated[
        str | None,
        Option(
            "--checkpoint",
            metavar="WRITE,RESTART",
            help="Durations of writing a checkpoint and of a restart, for jobs that can.",
        ),
    ] = None,
    where: options.Where = None,
    as_json: options.Json = False,
) -> int:
    """Compute sequences of requests, each longer than the last, and their expected cost.

    A request of length W with u of it used costs A W + B u + C. The predicted law of an image is
    for the longest run of a subject, and slightly wider than for a single run.
    """
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.requests.strategies import ALL, CHECKPOINTING, Settings, alternatives

    if strategy == LIST or source == LIST:
        print("\n".join(_strategy_lines()))
        return 0
    alpha, beta, gamma = options.numbers(cost, 3, "--cost")
    durations = (0.0, 0.0) if checkpoint is None else options.durations(checkpoint, "--checkpoint")
    kind = source_kind(source)
    if kind != "history" and where:
        raise ConfigError("is for a history", "--where")
    if kind == "law" and wanted.app:
        raise ConfigError("is for a history or an image", "--app")
    of_image = {
        "--param": wanted.parameters, "--model": wanted.model, "--cpus": wanted.cpus,
        "--gpus": wanted.gpus,
    }  # fmt: skip
    if kind != "image":
        options.refuse(of_image, "is for an image")
    law, warnings = law_of(source, wanted.question(), where or ())
    format_length = "{:.5g}".format if kind == "law" else format_seconds
    model_of_cost = CostModel(alpha, beta, gamma, *durations)
    settings = Settings(format_length=format_length)
    can_checkpoint = checkpoint is not None
    sequences, refused = alternatives(
        strategy, law, model_of_cost, settings, can_checkpoint=can_checkpoint
    )
    for reason in refused:
        logger.warning("skipped: %s", reason)
    if strategy == ALL and not can_checkpoint:
        logger.info(
            "skipped, for jobs that can write a checkpoint; they need --checkpoint: %s",
            ", ".join(CHECKPOINTING),
        )
    content = [sequence.as_json(warnings) for sequence in sequences]
    lines = (*_lines(sequences, format_length), *(f"  {warning}" for warning in warnings))
    return options.show(content, lines, as_json=as_json)


def _strategy_lines() -> Iterator[str]:
    """Yield the meaning of each strategy."""
    from voxcast.allocation.requests.strategies import STRATEGIES

    for name, strategy in STRATEGIES.items():
        yield f"{name}: {strategy.meaning}" + " (needs --checkpoint)" * strategy.checkpoints


def _lines(
    computed: Sequence[RequestSequence], format_length: Callable[[float], str]
) -> Iterator[str]:
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
    yield text_table(rows, "<>><")
    yield "  normalised: the cost over that of knowing the runtime beforehand; 1 is the least"
    if len(sequences) == 1:
        return
    cheapest = sequences[0]
    equal = [s.strategy for s in sequences[1:] if s.lengths == cheapest.lengths]
    same = f" ({', '.join(equal)} {'is' if len(equal) == 1 else 'are'} the same)" if equal else ""
    first, *others = (format_length(length) for length in cheapest.lengths)
    use = f"request {first}"
    if others:
        use += f", {others[0]} if that was too short" + ", and so on" * (len(others) > 1)
    yield f"  take the cheapest, {cheapest.strategy}{same}: {use}"
    yield "  what the names mean: `voxcast requests list`"
