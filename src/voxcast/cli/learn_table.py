"""A model of any table, for ``voxcast learn TABLE --target COL --out DIR``."""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.cli.table_report import NOVELTY, show
from voxcast.errors import ConfigError
from voxcast.files import atomic_folder, remove_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.features.screening import Screening
    from voxcast.models.table_model import TableModel

CARD_FILE = "card.json"
BUDGET_S = 300.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableQuestion:
    """What to learn from a table; see `voxcast.models.regressor.fit`."""

    target: str
    group: str | None = None
    exclude: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    quantile: float = 0.9
    budget_s: float | None = None
    trials: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises
        ------
        ConfigError
            If one is out of range, or two contradict each other.
        """
        if not 0.5 < self.quantile < 1:
            raise ConfigError(f"must be between 0.5 and 1, not {self.quantile}", "--quantile")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"must be 0 to {2**32 - 1}, not {self.seed}", "--seed")
        if both := sorted({*self.keep} & {*self.exclude}):
            raise ConfigError("is both kept and excluded", both[0], "name it once")
        if self.trials is not None and self.budget_s is not None:
            raise ConfigError("cannot both be given", "--trials and --time-budget")
        if self.budget_s == 0:
            raise ConfigError("must be above 0", "--time-budget")


def learn_table(
    table_path: Path, question: TableQuestion, out: Path, *, force: bool, as_json: bool
) -> int:
    """Judge the families on held-out groups, fit the best on all rows, and save it."""
    started = time.monotonic()
    budget_s = BUDGET_S if question.budget_s is None else question.budget_s
    _require_free(out, force=force)
    from voxcast.features.csv_table import read_csv
    from voxcast.log import progress
    from voxcast.models.regressor import fit
    from voxcast.models.table_fitting import FAMILIES, OUTER

    table = read_csv(table_path)
    with progress(total=(OUTER + 1) * len(FAMILIES), desc="fit") as bar:

        def step(description: str) -> None:
            bar.set_postfix_str(description)
            bar.update()

        regressor = fit(
            table, question.target, groups=question.group, exclude=question.exclude,
            keep=question.keep, quantile=question.quantile,
            trials=question.trials, time_budget=started + budget_s - time.monotonic(),
            random_state=question.seed, on_step=step,
        )  # fmt: skip
    fitted, screening, left_out = regressor.fitted_, regressor.screening_, regressor.left_out_
    content = {
        "family": fitted.family,
        "rows": fitted.rows,
        "rows_with_a_label": len(table) - len(set().union(*left_out.values())),
        "groups": fitted.groups,
        "errors_are_for": NOVELTY[fitted.novelty],
        "left_out": {reason: len(rows) for reason, rows in left_out.items()},
        "columns": _columns(screening),
        "trials": fitted.trials,
        "deterministic": fitted.deterministic,
        "quantile": question.quantile,
        "bound": fitted.model.evidence().to_json(),
        "metrics": fitted.metrics,
        "candidates": fitted.candidates,
        "model": str(out),
    }
    _save(fitted.model, content, out)
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        for line in (*_close_lines(screening), *_left_out_lines(screening)):
            print(line)
        for line in (*_spelled_lines(screening), *_idle_lines(screening, question.target)):
            print(line)
        show(fitted, question.target, out, question.trials)
    return 0


def _require_free(out: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written, or holds something, before the time is spent."""
    from voxcast.models.table_model import MODEL_FILE

    if out.exists() and not out.is_dir():
        raise ConfigError("is not a folder", out, "choose another with --out")
    if out.is_dir() and any(out.iterdir()):
        if not (out / MODEL_FILE).is_file():
            raise ConfigError("holds other files than a model", out, "choose another folder")
        if not force:
            raise ConfigError("holds a model", out, "--force replaces it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", out.parent) from None
    if not os.access(out.parent, os.W_OK):
        raise ConfigError("cannot be written", out.parent)


def _save(model: TableModel, card: dict[str, object], out: Path) -> None:
    """Write the model and its card, in place of an earlier one once they are complete."""
    with atomic_folder(out) as partial:
        model.save(partial)
        write_text(partial / CARD_FILE, json.dumps(card, indent=2) + "\n")
        if out.is_dir():
            remove_folder(out)


def _columns(screening: Screening) -> dict[str, object]:
    """Return which columns are used, left out, kept by request, and close to the target."""
    return {
        "used": sorted((*screening.columns.numbers, *screening.columns.texts)),
        "idle": list(screening.columns.idle),
        "left_out": screening.left_out,
        "kept": screening.requested,
        "spelled_as_numbers": screening.spelled,
        "close": screening.close,
    }


def _close_lines(screening: Screening) -> Iterator[str]:
    for name, reason in screening.close.items():
        yield f"Is {name} known before the run? It {reason}."
        yield f"  If not, the errors below are too good: --exclude {shlex.quote(name)}"


def _left_out_lines(screening: Screening) -> Iterator[str]:
    for name, reason in screening.left_out.items():
        yield f"left out: {name} {reason}; --keep {shlex.quote(name)} uses it"
    for name, reason in screening.requested.items():
        yield f"kept: {name}: {reason}; the errors are too good if it is known only afterwards"


def _spelled_lines(screening: Screening) -> Iterator[str]:
    for name, reason in screening.spelled.items():
        yield f"used as categories: {name} {reason}"


def _idle_lines(screening: Screening, target: str) -> Iterator[str]:
    if names := screening.columns.idle:
        verb = "tells" if len(names) == 1 else "tell"
        yield (
            f"rows that differ only in {' and '.join(names)} are taken for repeats, since within "
            f"them {'it' if len(names) == 1 else 'these'} {verb} nothing of {target}; "
            "--group COL says which rows belong together"
        )
