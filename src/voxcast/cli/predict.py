"""``voxcast predict IMAGE…``: runtime and memory, per configuration, by the champion."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from voxcast.cli.champion import add_arguments, champion
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, one_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Configuration


def main(argv: list[str]) -> int:
    """Ask the champion, in process or at ``--url``, and print its quantiles."""
    parser = argparse.ArgumentParser(prog="voxcast predict", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE|TABLE.csv")
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="of `voxcast fit`: predict the rows of a table"
    )
    parser.add_argument("--csv", type=Path, metavar="OUT", help="--model: write them here")
    parser.add_argument("--quantile", type=float, default=0.95, help="upper bound (default 0.95)")
    parser.add_argument(
        "--explain", action="store_true", help="say which three features moved it most"
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_arguments(parser)
    args = parser.parse_intermixed_args(argv)
    if args.model is not None:
        return _table(args)
    if not 0.5 < args.quantile < 1:
        raise ConfigError(f"must lie between 0.5 and 1, not {args.quantile}", "--quantile")
    asked = champion(args)
    found: list[dict[str, Any]] = []
    code = 0
    for image in args.images:
        try:
            answers = asked.answer(asked.questions(image), args.quantile, args.explain)
            found.append({"image": str(image), "predictions": answers})
        except ImageError as error:  # the others are answered all the same
            print(f"voxcast: {one_line(error)}", file=sys.stderr)
            code = EXIT_BAD_INPUT
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        for one in found:
            _show(str(one["image"]), one["predictions"], args.quantile)
    return code


def _table(args: argparse.Namespace) -> int:
    """Predict the rows of one table by a model of `voxcast fit`."""
    from voxcast.features.any_table import read_csv
    from voxcast.files import atomic_path
    from voxcast.models.table_model import TableModel

    if len(args.images) != 1:
        raise ConfigError("takes one table", "--model")
    found = TableModel.load(args.model).predict(read_csv(args.images[0]))
    if args.csv is not None:
        with atomic_path(args.csv) as partial:
            found.to_csv(partial, index=False)
    if args.json:
        print(json.dumps(found.to_dict("records"), indent=2))
    elif args.csv is None:
        found.to_csv(sys.stdout, index=False)
    return 0


def _show(image: str, answers: list[dict[str, Any]], quantile: float) -> None:
    low, high = f"{100 * (1 - quantile):.3g} %", f"{100 * quantile:.3g} %"
    first = answers[0]
    print(f"{os.path.basename(image)}: {first['app']} by {first['family']}")  # noqa: PTH119
    runtime = f"{'runtime ' + low:>16}{'50 %':>14}{high:>14}"
    memory = f"{'memory ' + low:>18}{'50 %':>12}{high:>12}"
    print(f"  {'':14}{runtime}{memory}")
    for a in answers:
        label = Configuration(a["device"], int(a["cpus"])).label
        times = [format_seconds(a[f"runtime_s_{q}"]) for q in ("lower", "median", "upper")]
        sizes = [format_bytes(a[f"peak_rss_bytes_{q}"]) for q in ("lower", "median", "upper")]
        print(
            f"  {label:14}{times[0]:>16}{times[1]:>14}{times[2]:>14}"
            f"{sizes[0]:>18}{sizes[1]:>12}{sizes[2]:>12}"
        )
    for reason in json.loads(first.get("because") or "[]"):
        moved = f"{100 * (reason['factor'] - 1):+.0f} %"
        print(f"  {moved:>7} for {reason['name']}: {reason['value']:.4g}, usual is "
              f"{reason['usual']:.4g}")  # fmt: skip
    if first["input_level"] == "header":
        print("  from the header alone: the voxels were not looked at, so the bounds are wider")
    if out_of_range := sorted({name for a in answers for name in a["out_of_range"].split()}):
        print(f"  unlike all that was measured in {', '.join(out_of_range)}: an extrapolation")
    elif not first["calibrated"]:
        print(f"  not calibrated: too few subjects were measured to promise {high}")
