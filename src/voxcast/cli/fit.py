"""``voxcast fit TABLE.csv --target COL --out DIR``: train and evaluate a model on any table."""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.files import atomic_folder, remove_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.features.any_table import Columns
    from voxcast.features.hindsight import Suspicion
    from voxcast.models.table_model import FittedTable, TableModel

METRICS = ("mape", "median_ape", "upp", "ov_mape", "coverage")

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
    parser.add_argument("--id", dest="ids", action="append", default=[], metavar="COL",
                        help="not a feature; may be repeated")  # fmt: skip
    parser.add_argument(
        "--keep", action="append", default=[], metavar="COL",
        help="use this column although it would be left out; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--time-budget", type=float, metavar="S", help="total time budget in seconds (default 300)"
    )
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
    if args.trials is not None and args.time_budget is not None:
        raise ConfigError("cannot both be given", "--trials and --time-budget")
    budget_s = 300.0 if args.time_budget is None else args.time_budget
    if not budget_s > 0:
        raise ConfigError("must be above 0", "--time-budget")

    _require_free(args.out, force=args.force)

    from tqdm import tqdm

    from voxcast.features.any_table import censored_groups, choose_columns, learnable, read_csv
    from voxcast.features.screening import screened
    from voxcast.models.table_model import FAMILIES, OUTER, fit_table

    table = read_csv(args.table)
    columns = choose_columns(table, args.target, args.group, args.ids)
    usable, left_out = learnable(table, columns)
    columns, noticed = screened(table[usable], columns, args.keep)
    for reason, rows in left_out.items():
        examples = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        logger.info("%d rows excluded, %s: %s", len(rows), reason, examples)
    with tqdm(total=(OUTER + 1) * len(FAMILIES), desc="fit", disable=None, delay=2) as bar:

        def step(description: str) -> None:
            bar.set_postfix_str(description)
            bar.update()

        fitted = fit_table(
            table[usable], columns, quantile=args.quantile, seed=args.seed, on_step=step,
            trials=args.trials or 50,
            budget_s=math.inf if args.trials is not None
            else started + budget_s - time.monotonic(),
            censored=censored_groups(table, columns),
        )  # fmt: skip
    _save(fitted.model, args.out)
    count = int(usable.sum())
    if fitted.rows < count:
        logger.info("trained on a sample of %d of %d rows", fitted.rows, count)
    content = {
        "family": fitted.family,
        "rows": fitted.rows,
        "rows_with_a_label": count,
        "groups": fitted.groups,
        "left_out": {reason: len(rows) for reason, rows in left_out.items()},
        "columns": _columns(columns, noticed, args.keep),
        "trials": fitted.trials,
        "deterministic": fitted.deterministic,
        "quantile": args.quantile,
        "metrics": fitted.metrics,
        "candidates": fitted.candidates,
        "model": str(args.out),
    }
    if args.json:
        print(json.dumps(content, indent=2))
    else:
        _show(fitted, args.target, args.out)
        for line in _column_lines(noticed, args.keep):
            print(line)
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


def _save(model: TableModel, out: Path) -> None:
    """Write the model, in place of an earlier one once it is complete."""
    with atomic_folder(out) as partial:
        model.save(partial)
        if out.is_dir():
            remove_folder(out)


def _columns(
    columns: Columns, noticed: Sequence[Suspicion], keep: Sequence[str]
) -> dict[str, object]:
    """Return which columns are used, left out, kept by request, and close to the target."""
    close = [s for s in noticed if not s.leave_out and s.column not in keep]
    return {
        "used": sorted((*columns.numbers, *columns.texts)),
        "left_out": {s.column: s.reason for s in noticed if s.leave_out},
        "kept": {s.column: s.reason for s in noticed if s.column in keep},
        "close": {s.column: s.reason for s in close},
    }


def _column_lines(noticed: Sequence[Suspicion], keep: Sequence[str]) -> Iterator[str]:
    for suspicion in noticed:
        text = f"{suspicion.column}: {suspicion.reason}"
        if suspicion.leave_out:
            yield f"  left out: {text}; --keep {shlex.quote(suspicion.column)} uses it"
        elif suspicion.column in keep:
            yield f"  kept: {text}; the errors above are too good if it is known only afterwards"
        else:
            yield (f"  used: {text}; if it is measured during the run, leave it out with "
                   f"--id {shlex.quote(suspicion.column)}")  # fmt: skip


def _show(fitted: FittedTable, target: str, out: Path) -> None:
    print(f"{target}: {fitted.family}, from {fitted.rows} rows of {fitted.groups} groups")
    print(f"  {'held-out groups':22}" + "".join(f"{name:>12}" for name in METRICS))
    candidates = {"selected": fitted.metrics, **fitted.candidates}
    for name, metrics in sorted(candidates.items(), key=lambda candidate: candidate[1]["mape"]):
        values = [metrics[n] * (100 if n == "coverage" else 1) for n in METRICS]
        print(f"  {name:22}" + "".join(f"{value:>10.1f} %" for value in values))
    print("  mape, median_ape: mean and median absolute error; upp: rows predicted too low")
    print("  ov_mape: mean excess of the others; coverage: rows below their upper bound")
    clock = "" if fitted.deterministic else "; the search stopped at the time budget"
    print(f"  {fitted.trials} trials{clock}; model in {out}")
