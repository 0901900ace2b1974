"""``voxcast requests``: a sequence of requests, each longer than the last, until one suffices.

The distribution of a column of measured runs, for ``voxcast requests HISTORY``.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from typer import Argument, Option

from voxcast.cli import options
from voxcast.cli.question import Question
from voxcast.errors import ConfigError, TableError
from voxcast.images.header import ENDINGS
from voxcast.quantities import format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from voxcast.allocation.requests.strategies import RequestSequence
    from voxcast.laws.families import Law


PRINTED_REQUESTS = 5
LIST = "list"
RUNTIME = "runtime_s"

logger = logging.getLogger(__name__)


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
    column: Annotated[
        str, Option("--column", metavar="NAME", help="Column of the runs.")
    ] = RUNTIME,
    fit: Annotated[
        str | None,
        Option("--fit", metavar="FAMILY", help="Fit a family, or the `best`, to the runs."),
    ] = None,
    where: options.Where = None,
    points: Annotated[
        int | None, Option("--points", metavar="N", help="Points of a discretisation.", min=1)
    ] = None,
    periods: Annotated[
        int | None, Option("--periods", metavar="N", help="Periods of a periodic strategy.", min=1)
    ] = None,
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    header_only: options.HeaderOnly = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compute sequences of requests, each longer than the last, and their expected cost.

    A request of length W with u of it used costs A W + B u + C. The predicted law of an image is
    for the longest run of a subject, and slightly wider than for a single run.
    """
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.allocation.requests.programme import POINTS
    from voxcast.allocation.requests.strategies import ALL, CHECKPOINTING, Settings, alternatives

    if strategy == LIST or source == LIST:
        print("\n".join(_strategy_lines()))
        return 0
    alpha, beta, gamma = options.numbers(cost, 3, "--cost")
    durations = (0.0, 0.0) if checkpoint is None else options.durations(checkpoint, "--checkpoint")
    law: Law
    warnings: list[str] = []
    kind = _kind(source)
    of_kind: dict[str, dict[str, object]] = {
        "history": {"--fit": fit, "--where": where, "--column": column != RUNTIME},
        "image": {"--param": parameters, "--model": model, "--cpus": cpus, "--gpus": gpus},
    }
    for wanted, values in of_kind.items():
        if wanted != kind and (wrong := next((name for name in values if values[name]), None)):
            raise ConfigError(
                f"is for {'a history' if wanted == 'history' else 'an image'}", wrong
            )
    if app is not None and kind == "law":
        raise ConfigError("is for a history or an image", "--app")
    if kind == "law":
        from voxcast.laws.families import parse_law

        law, in_seconds = parse_law(source), False
    elif kind == "history":
        runs = measured_runs(Path(source), app, where or [], column)
        law, in_seconds = law_of_column(runs, column, fit, Path(source)), column.endswith("_s")
    else:
        question = Question(app, cpus, gpus, parameters or (), model, header_only, project=project)
        (law, warnings), in_seconds = _predicted_law(Path(source), question), True
    model_of_cost = CostModel(alpha, beta, gamma, *durations)
    format_length = format_seconds if in_seconds else "{:.5g}".format
    settings = Settings(POINTS if points is None else points, periods, format_length)
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
    if as_json:
        content = [sequence.as_json(warnings) for sequence in sequences]
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show(sequences, format_length)
        for warning in warnings:
            print(f"  {warning}")
    return 0


def _kind(source: str) -> str:
    """Tell what the source of a law is.

    Examples
    --------
    >>> [_kind(text) for text in ("lognormal(3,0.5)", "data/history/reference", "T1w.nii.gz")]
    ['law', 'history', 'image']
    """
    if "(" in source and not Path(source).exists():
        return "law"
    return "image" if source.lower().endswith(ENDINGS) else "history"


def _strategy_lines() -> Iterator[str]:
    """Yield the meaning of each strategy."""
    from voxcast.allocation.requests.strategies import STRATEGIES

    for name, strategy in STRATEGIES.items():
        yield f"{name}: {strategy.meaning}" + " (needs --checkpoint)" * strategy.checkpoints


def _predicted_law(image: Path, question: Question) -> tuple[Law, list[str]]:
    """Return the predicted distribution, and why it does not hold as stated; empty if it does."""
    from voxcast.allocation.requests.per_image import QUANTILES, PredictedRuntime

    champion = question.champion()
    configuration = champion.configurations[0]
    rows = champion.request_rows(image, [configuration])
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
    yield "  what the names mean: `voxcast requests list`"


def measured_runs(
    history: Path, app: str | None, conditions: Sequence[str], column: str
) -> pd.DataFrame:
    """Return the completed runs of one application in a history or a CSV table, each once.

    How a run of a table ended is read from the columns of `voxcast.features.run_status`.

    Parameters
    ----------
    app : str or None
        Needed if there are several; a CSV table without a column ``app`` has none.
    conditions : sequence of str
        See `voxcast.runs.table.runs_where`.
    column : str
        Column of times, which is never read as an outcome.

    Raises
    ------
    TableError
        If the history, application, column or value is missing.
    """
    import pandas as pd

    from voxcast.features.run_status import COMPLETED, statuses
    from voxcast.runs.table import only_app, runs_where

    if history.is_file() or history.suffix == ".csv":
        from voxcast.features.csv_table import read_csv

        runs = read_csv(history)
        if app is not None and "app" not in runs:
            raise TableError("has no column app", history, "leave out --app")
        status = pd.Series(statuses(runs, (column,)), index=runs.index)
        usable = runs[status == COMPLETED]
        selection = "completed"
    else:
        from voxcast.runs.store import open_history
        from voxcast.runs.table import settled

        runs = open_history(history).runs
        # Anchors, and disturbed runs that were repeated undisturbed, would count twice.
        status = runs["outcome"].astype(str)
        usable = settled(runs[status == COMPLETED])
        selection = "completed, and each once"
    if "app" in runs:
        name = only_app(set(runs["app"].dropna().astype(str)), app, history)
        runs, usable = runs[runs["app"] == name], usable[usable["app"] == name]
    if usable.empty and len(runs):
        raise TableError(f"none of {len(runs)} runs has the outcome completed", history)
    if len(usable) < len(runs):
        logger.info("%d of %d runs are used: %s", len(usable), len(runs), selection)
    _log_left_out(status.loc[runs.index].to_numpy())
    chosen = runs_where(usable, conditions)
    if "cpus" in chosen and chosen["cpus"].nunique() > 1:
        counts = ", ".join(map(str, sorted(chosen["cpus"].dropna().unique())))
        logger.warning(
            "runs on %s CPUs make one distribution; --where cpus=N takes those on N", counts
        )
    return chosen


def _log_left_out(status: np.ndarray) -> None:
    """Log how many runs did not complete, and that stopped runs may be the longest."""
    from voxcast.features.run_status import COMPLETED, is_censored

    names, counts = np.unique(status[status != COMPLETED].astype(str), return_counts=True)
    if not len(names):
        return
    listed = (
        f"{count} {name.replace('_', ' ')}" for name, count in zip(names, counts, strict=True)
    )
    logger.info("left out, not completed: %s", ", ".join(listed))
    if count := int(is_censored(status).sum()):
        logger.warning(
            "%d runs were stopped before they completed, and may be the longest: the requests "
            "below are for those that completed, and fail more often on all", count,
        )  # fmt: skip


def law_of_column(runs: pd.DataFrame, column: str, family: str | None, history: Path) -> Law:
    """Return the law of a column: the empirical one, or of a fitted family.

    Parameters
    ----------
    family : str or None
        A name, or ``best``; None for the empirical law.
    history : Path
        For messages.

    Raises
    ------
    ConfigError
        If the family is unknown.
    TableError
        If the column is missing or empty, or a value is not a finite number above 0.
    """
    from voxcast.laws.empirical import EmpiricalLaw
    from voxcast.laws.families import FAMILIES
    from voxcast.laws.fits import rank_fits

    if column not in runs:
        names = ", ".join(map(str, runs.columns[:20]))
        raise TableError(f"has no column {column}, but {names}", history)
    numbers = runs[column].dropna()
    if len(numbers) < len(runs):
        logger.info("%d of %d runs have a %s", len(numbers), len(runs), column)
    try:
        values = numbers.to_numpy(dtype=float)
    except (TypeError, ValueError):
        from voxcast.features.csv_table import text_target

        numeric = runs.select_dtypes("number").columns.map(str).tolist()
        raise text_target(runs, column, numeric) from None
    if not len(values):
        raise TableError(f"{column} has no values", history)
    if count := int((~(values > 0) | np.isinf(values)).sum()):
        raise TableError(
            f"{count} of {len(values)} values of {column} are not finite numbers above 0", history,
            "leave their rows out",
        )  # fmt: skip
    if family is None:
        return EmpiricalLaw(values)
    if family not in (*FAMILIES, "best"):
        raise ConfigError("unknown family", family, f"choose from {', '.join(FAMILIES)}, best")
    # Not the normal distribution, which has negative runtimes.
    families = [name for name in FAMILIES if name != "normal"]
    fit = rank_fits(values, families if family == "best" else [family])[0]
    parameters = ", ".join(f"{name} {value:.5g}" for name, value in fit.parameters.items())
    logger.info("%s (%s), KS %.3f, n %d", fit.family, parameters, fit.ks, fit.n)
    return fit.law
