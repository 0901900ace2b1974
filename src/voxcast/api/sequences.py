"""Sequences of requests from a law, from recorded runs, or from a prediction."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.strategies import Settings, alternatives
from voxcast.api.question import Question
from voxcast.errors import TableError
from voxcast.features.any_table import COMPLETED, is_censored, read_csv, statuses
from voxcast.images.header import ENDINGS
from voxcast.quantities import format_seconds
from voxcast.runs.store import open_history
from voxcast.runs.table import only_app, runs_where, settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from voxcast.laws.families import Law

RUNTIME = "runtime_s"

logger = logging.getLogger(__name__)


def requests(
    source: str | os.PathLike[str],
    app: str | None = None,
    *,
    strategy: str = "all",
    cost: tuple[float, float, float] = (1.0, 0.0, 0.0),
    checkpoint: tuple[float, float] | None = None,
    cpus: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    model: str | None = None,
    project: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Compute sequences of requests, each longer than the last, and their expected cost.

    Parameters
    ----------
    source : str or path
        A law such as ``lognormal(3,0.5)``, a history (a folder or a CSV table), or an image, whose
        runtime the model predicts.
    app : str, optional
        Application of a history or an image.
    strategy : str
        A strategy of `voxcast.allocation.requests.strategies.STRATEGIES`, or ``all``.
    cost : tuple of float
        Prices (a, b, c): a request of length W with u of it used costs a W + b u + c.
    checkpoint : tuple of float, optional
        Seconds of writing a checkpoint and of a restart, for jobs that can.
    cpus, parameters, model, project
        Of the question about an image, see `voxcast.api.question.Question`.

    Returns
    -------
    DataFrame
        One row for each strategy, the cheapest first: ``strategy``, ``requests`` (a list of
        lengths), ``expected_cost`` and ``normalised_cost``, the cost divided by that of
        runtime beforehand.

    Raises
    ------
    VoxcastError
        If the source cannot be read, or the strategy is unknown.

    References
    ----------
    Aupy et al., IPDPS 2019; Gainaru et al., IPDPS 2020.

    Examples
    --------
    >>> table = requests("lognormal(3,0.5)", strategy="mean_doubling")
    >>> [round(length, 1) for length in table.requests[0][:2]]
    [22.8, 45.5]
    """
    import pandas as pd

    folder = None if project is None else Path(project)
    numbers = None if cpus is None else (cpus,)
    question = Question(app, numbers, None, parameters or {}, model, folder)
    law, _ = law_of(str(source), question)
    costs = CostModel(*cost, *(checkpoint or (0.0, 0.0)))
    sequences, _ = alternatives(
        strategy, law, costs, Settings(), can_checkpoint=checkpoint is not None
    )
    rows = [
        {
            "strategy": sequence.strategy,
            "requests": list(sequence.lengths),
            "expected_cost": sequence.expected_cost,
            "normalised_cost": sequence.normalised_cost,
        }
        for sequence in sequences
    ]
    return pd.DataFrame(rows).sort_values("expected_cost", ignore_index=True)


def source_kind(source: str) -> str:
    """Return the kind of a source: a law, a history or an image.

    Examples
    --------
    >>> source_kind("lognormal(3,0.5)"), source_kind("data/history"), source_kind("T1w.nii.gz")
    ('law', 'history', 'image')
    """
    if "(" in source and not Path(source).exists():
        return "law"
    return "image" if source.lower().endswith(ENDINGS) else "history"


def law_of(
    source: str, question: Question, conditions: Sequence[str] = ()
) -> tuple[Law, list[str]]:
    """Return the law of a source, and why it does not hold as stated; empty if it does.

    Parameters
    ----------
    source : str
        A law, a history or an image, as in `requests`.
    question : Question
        Its application chooses the runs of a history; all of it is asked about an image.
    conditions : sequence of str
        See `measured_runs`.

    Raises
    ------
    VoxcastError
        If the source cannot be read.
    """
    from voxcast.laws.families import EmpiricalLaw, parse_law

    kind, path = source_kind(source), Path(source)
    if kind == "law":
        return parse_law(source), []
    if kind == "image":
        return predicted_law(path, question)
    return EmpiricalLaw(runtimes_of(measured_runs(path, question.app, conditions), path)), []


def predicted_law(image: Path, question: Question) -> tuple[Law, list[str]]:
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


def measured_runs(history: Path, app: str | None, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the completed runs of one application in a history or a CSV table, each once.

    How a run of a table ended is read from the columns of `voxcast.features.any_table`.

    Parameters
    ----------
    app : str or None
        Needed if there are several; a CSV table without a column ``app`` has none.
    conditions : sequence of str
        See `voxcast.runs.table.runs_where`.

    Raises
    ------
    TableError
        If the history, application, column or value is missing.
    """
    import pandas as pd

    if history.is_file() or history.suffix == ".csv":
        runs = read_csv(history)
        if app is not None and "app" not in runs:
            raise TableError("has no column app", history, "leave out --app")
        status = pd.Series(statuses(runs, (RUNTIME,)), index=runs.index)
        usable = runs[status == COMPLETED]
        selection = "completed"
    else:
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
    _log_left_out(status.loc[runs.index].astype(str))
    chosen = runs_where(usable, conditions)
    if "cpus" in chosen and chosen["cpus"].nunique() > 1:
        counts = ", ".join(map(str, sorted(chosen["cpus"].dropna().unique())))
        logger.warning(
            "runs on %s CPUs make one distribution; --where cpus=N takes those on N", counts
        )
    return chosen


def _log_left_out(status: pd.Series) -> None:
    """Log how many runs did not complete, and that stopped runs may be the longest."""
    left_out = status[status != COMPLETED]
    if left_out.empty:
        return
    counts = left_out.value_counts().sort_index()
    listed = ", ".join(f"{n} {str(name).replace('_', ' ')}" for name, n in counts.items())
    logger.info("left out, not completed: %s", listed)
    if count := int(is_censored(left_out.to_numpy()).sum()):
        logger.warning(
            "%d runs were stopped before they completed, and may be the longest: the requests "
            "below are for those that completed, and fail more often on all", count,
        )  # fmt: skip


def runtimes_of(runs: pd.DataFrame, history: Path) -> np.ndarray:
    """Return the runtimes of runs.

    Raises
    ------
    TableError
        If there are none, or one is not a finite number above 0.
    """
    if RUNTIME not in runs:
        names = ", ".join(map(str, runs.columns[:20]))
        raise TableError(f"has no column {RUNTIME}, but {names}", history)
    numbers = runs[RUNTIME].dropna()
    if len(numbers) < len(runs):
        logger.info("%d of %d runs have a %s", len(numbers), len(runs), RUNTIME)
    try:
        values = numbers.to_numpy(dtype=float)
    except (TypeError, ValueError):
        raise TableError(f"{RUNTIME} is text, not seconds", history) from None
    if not len(values):
        raise TableError(f"{RUNTIME} has no values", history)
    if count := int((~(values > 0) | np.isinf(values)).sum()):
        raise TableError(
            f"{count} of {len(values)} values of {RUNTIME} are not finite numbers above 0",
            history, "leave their rows out",
        )  # fmt: skip
    return values
