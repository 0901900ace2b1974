"""``voxcast fit TABLE.csv --target COL --out DIR``: train and evaluate a model on any table."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from voxcast.models.table_model import FittedTable

METRICS = ("mape", "median_ape", "upp", "ov_mape", "coverage")

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Evaluate the families on held-out groups, fit the best on all rows, and save it."""
    parser = VerbParser(prog="voxcast fit", description=__doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.csv")
    parser.add_argument("--target", required=True, metavar="COL", help="column to predict")
    parser.add_argument(
        "--group", metavar="COL", help="groups that are never split, e.g. subjects"
    )
    parser.add_argument("--id", dest="ids", action="append", default=[], metavar="COL",
                        help="not a feature; may be repeated")  # fmt: skip
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

    from tqdm import tqdm

    from voxcast.features.any_table import censored_groups, choose_columns, learnable, read_csv
    from voxcast.models.table_model import FAMILIES, OUTER, fit_table

    table = read_csv(args.table)
    columns = choose_columns(table, args.target, args.group, args.ids)
    usable, left_out = learnable(table, columns)
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
            budget_s=math.inf if args.trials is not None else budget_s,
            censored=censored_groups(table, columns),
        )  # fmt: skip
    fitted.model.save(args.out)
    count = int(usable.sum())
    if fitted.rows < count:
        logger.info("trained on a sample of %d of %d rows", fitted.rows, count)
    content = {
        "family": fitted.family,
        "rows": fitted.rows,
        "rows_with_a_label": count,
        "groups": fitted.groups,
        "left_out": {reason: len(rows) for reason, rows in left_out.items()},
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
    return 0


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
