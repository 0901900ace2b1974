"""``voxcast fit TABLE.csv --target COL --out DIR``: learn a column of any table, and judge it."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from voxcast.models.table_model import Fitted

SHOWN = ("mape", "median_ape", "upp", "ov_mape", "coverage")


def main(argv: list[str]) -> int:
    """Judge the zoo on groups not seen, fit it on all rows, and write the model."""
    parser = argparse.ArgumentParser(prog="voxcast fit", description=__doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.csv")
    parser.add_argument("--target", required=True, metavar="COL", help="what to predict")
    parser.add_argument("--group", metavar="COL", help="what is never split, e.g. the subject")
    parser.add_argument("--id", dest="ids", action="append", default=[], metavar="COL",
                        help="no feature, as often as wanted")  # fmt: skip
    parser.add_argument("--time-budget", type=float, metavar="S", help="for all of it (300)")
    parser.add_argument(
        "--trials", type=int, metavar="N",
        help="sets of parameters a family, whatever the time: independent of the clock",
    )  # fmt: skip
    parser.add_argument("--quantile", type=float, default=0.9, help="of the upper bound (0.9)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the model")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)
    if not 0.5 < args.quantile < 1:
        raise ConfigError(f"must lie between 0.5 and 1, not {args.quantile}", "--quantile")
    if args.trials is not None and args.trials < 1:
        raise ConfigError("must be at least 1", "--trials")
    if args.trials is not None and args.time_budget is not None:
        raise ConfigError("cannot both be given", "--trials and --time-budget")
    budget_s = 300.0 if args.time_budget is None else args.time_budget
    if not budget_s > 0:
        raise ConfigError("must be above 0", "--time-budget")

    from tqdm import tqdm

    from voxcast.features.any_table import choose_columns, ended_groups, learnable, read_csv
    from voxcast.models.table_model import FAMILIES, OUTER, fit_table

    table = read_csv(args.table)
    columns = choose_columns(table, args.target, args.group, args.ids)
    usable, left_out = learnable(table, columns)
    for why, rows in left_out.items():
        first = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        print(f"voxcast: {len(rows)} rows left out, {why}: {first}", file=sys.stderr)
    with tqdm(total=(OUTER + 1) * len(FAMILIES), desc="fit", disable=None, delay=2) as bar:

        def step(what: str) -> None:
            bar.set_postfix_str(what)
            bar.update()

        found = fit_table(
            table[usable], columns, quantile=args.quantile, seed=args.seed, on_step=step,
            trials=args.trials or 50,
            budget_s=math.inf if args.trials is not None else budget_s,
            ended=ended_groups(table, columns),
        )  # fmt: skip
    found.model.save(args.out)
    count = int(usable.sum())
    if found.rows < count:
        print(f"voxcast: of {count} rows a sample of {found.rows} was learned from",
              file=sys.stderr)  # fmt: skip
    content = {
        "family": found.family,
        "rows": found.rows,
        "rows_with_a_label": count,
        "groups": found.groups,
        "left_out": {why: len(rows) for why, rows in left_out.items()},
        "trials": found.trials,
        "deterministic": found.deterministic,
        "quantile": args.quantile,
        "metrics": found.metrics,
        "candidates": found.candidates,
        "model": str(args.out),
    }
    if args.json:
        print(json.dumps(content, indent=2))
    else:
        _show(found, args.target, args.out)
    return 0


def _show(found: Fitted, target: str, out: Path) -> None:
    print(f"{target}: {found.family}, from {found.rows} rows of {found.groups} groups")
    print(f"  {'on groups not seen':22}" + "".join(f"{name:>12}" for name in SHOWN))
    everyone = {"the procedure": found.metrics, **found.candidates}
    for name, own in sorted(everyone.items(), key=lambda one: one[1]["mape"]):
        values = [own[n] * (100 if n == "coverage" else 1) for n in SHOWN]
        print(f"  {name:22}" + "".join(f"{value:>10.1f} %" for value in values))
    clock = "" if found.deterministic else "; the time budget ended the search"
    print(f"  {found.trials} trials{clock}; model in {out}")
