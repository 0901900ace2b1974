"""``voxcast fit TABLE.csv --target COL --out DIR``: train and evaluate a model on any table."""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.fit_report import NOVELTY, show
from voxcast.cli.shared_options import add_time_budget_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.files import atomic_folder, remove_folder, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.features.screening import Screening
    from voxcast.models.table_model import TableModel

CARD_FILE = "card.json"

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Evaluate the families on held-out groups, fit the best on all rows, and save it."""
    started = time.monotonic()
    parser = VerbParser(prog="voxcast fit", description=__doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.csv")
    parser.add_argument("--target", required=True, metavar="COL", help="column to predict")
    parser.add_argument(
        "--group", metavar="COL", help="groups that are never split, e.g. subjects"
    )
    parser.add_argument(
        "--exclude", "--id", dest="excluded", action="append", default=[], metavar="COL",
        help="no feature, such as an identifier, or what is known only after a run; may be "
        "repeated",
    )  # fmt: skip
    parser.add_argument(
        "--keep", action="append", default=[], metavar="COL",
        help="use this column whatever its name or its values suggest; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--keep-failed", action="store_true",
        help="use the rows of runs that failed or were stopped as if they had completed",
    )  # fmt: skip
    parser.add_argument(
        "--strict", action="store_true",
        help="refuse columns that rank the rows as the target does, unless named by --keep",
    )  # fmt: skip
    add_time_budget_argument(parser, "total time (default 5min)")
    parser.add_argument(
        "--trials", type=int, metavar="N",
        help="hyperparameter trials per family, without a time budget: reproducible",
    )  # fmt: skip
    parser.add_argument(
        "--quantile", type=float, default=0.9, help="probability of the upper bound (default 0.9)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the model"
    )
    parser.add_argument("--force", action="store_true", help="replace the model in DIR")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if not 0.5 < args.quantile < 1:
        raise ConfigError(f"must be between 0.5 and 1, not {args.quantile}", "--quantile")
    if args.trials is not None and args.trials < 1:
        raise ConfigError("must be at least 1", "--trials")
    if not 0 <= args.seed < 2**32:
        raise ConfigError(f"must be 0 to {2**32 - 1}, not {args.seed}", "--seed")
    if both := sorted({*args.keep} & {*args.excluded}):
        raise ConfigError("is both kept and excluded", both[0], "name it once")
    if args.trials is not None and args.time_budget is not None:
        raise ConfigError("cannot both be given", "--trials and --time-budget")
    budget_s = 300.0 if args.time_budget is None else args.time_budget
    if not budget_s > 0:
        raise ConfigError("must be above 0", "--time-budget")

    _require_free(args.out, force=args.force)

    from voxcast.features.csv_table import read_csv
    from voxcast.log import progress
    from voxcast.models.regressor import fit
    from voxcast.models.table_fitting import FAMILIES, OUTER

    table = read_csv(args.table)
    with progress(total=(OUTER + 1) * len(FAMILIES), desc="fit") as bar:

        def step(description: str) -> None:
            bar.set_postfix_str(description)
            bar.update()

        regressor = fit(
            table, args.target, groups=args.group, exclude=args.excluded, keep=args.keep,
            keep_failed=args.keep_failed, strict=args.strict, quantile=args.quantile,
            trials=args.trials, time_budget=started + budget_s - time.monotonic(),
            random_state=args.seed, on_step=step,
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
        "quantile": args.quantile,
        "bound": fitted.model.evidence().to_json(),
        "metrics": fitted.metrics,
        "candidates": fitted.candidates,
        "model": str(args.out),
    }
    _save(fitted.model, content, args.out)
    if args.json:
        print(json.dumps(content, indent=2))
    else:
        for line in (*_close_lines(screening), *_left_out_lines(screening)):
            print(line)
        for line in (*_spelled_lines(screening), *_idle_lines(screening, args.target)):
            print(line)
        show(fitted, args.target, args.out, args.trials)
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
