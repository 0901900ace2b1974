"""``voxcast predict IMAGE…``: runtime and memory, per configuration, by the champion."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from voxcast.cli import project
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, ModelError, one_line
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
    parser.add_argument("--app", help="application (default: the model's first)")
    parser.add_argument("--quantile", type=float, default=0.95, help="upper bound (default 0.95)")
    parser.add_argument(
        "--cpus", type=_cpus, metavar="N,N", help="CPUs (default: those that were tried)"
    )
    parser.add_argument("--header-only", action="store_true", help="do not read voxels")
    parser.add_argument("--url", help="ask a server started by `voxcast serve`")
    parser.add_argument(
        "--explain", action="store_true", help="say which three features moved it most"
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    project.add_argument(parser)
    args = parser.parse_intermixed_args(argv)
    if args.model is not None:
        return _table(args)
    if not 0.5 < args.quantile < 1:
        raise ConfigError(f"must lie between 0.5 and 1, not {args.quantile}", "--quantile")
    ask = _remote(args) if args.url else _local(args)
    found, code = [], 0
    for image in args.images:
        try:
            found.append({"image": str(image), "predictions": ask(image)})
        except ImageError as error:  # the others are answered all the same
            print(f"voxcast: {one_line(error)}", file=sys.stderr)
            code = EXIT_BAD_INPUT
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        for answer in found:
            _show(answer["image"], answer["predictions"], args.quantile)
    return code


def _table(args: argparse.Namespace) -> int:
    """Predict the rows of one table by a model of `voxcast fit`."""
    from voxcast.features.any_table import read_csv
    from voxcast.files import atomic_path
    from voxcast.models.any_history import TableModel

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


def _cpus(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {min(counts)}")
    return counts


def _local(args: argparse.Namespace) -> Any:
    """Return a function from image to answers of the champion loaded here."""
    folder = project.find(args.project)
    # MLflow and its friends talk on start-up; a user asked a question.
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):
        import pandas as pd

        from voxcast.serving.client import questions
        from voxcast.tracking.registry import load_champion

        model = load_champion(folder)
    answers = model.unwrap_python_model().answers
    catalogue = answers.catalogue
    app = args.app or next(iter(catalogue.apps))
    if app not in catalogue.apps:
        known = ", ".join(catalogue.apps)
        raise ModelError(f"unknown application, the champion knows {known}", app)
    tried = catalogue.configurations
    chosen = [Configuration("cpu", n) for n in args.cpus] if args.cpus else tried

    def ask(image: Path) -> list[dict[str, Any]]:
        rows = questions(
            image, app, chosen,
            coarse_points=catalogue.coarse_points, header_only=args.header_only,
        )  # fmt: skip
        params = {"quantile": args.quantile} | ({"explain": True} if args.explain else {})
        answered = model.predict(pd.DataFrame(rows), params=params)
        records: list[dict[str, Any]] = json.loads(answered.to_json(orient="records"))
        return records

    return ask


def _remote(args: argparse.Namespace) -> Any:
    """Return a function from image to answers of the server."""
    from voxcast import config
    from voxcast.images.volumes import POINTS
    from voxcast.serving.client import ask as ask_server
    from voxcast.serving.client import questions

    folder = project.find(args.project)
    known = None if folder is None else config.load(folder / config.PARAMS_FILE)
    points = POINTS if known is None else known.features.coarse_points
    tried = [Configuration("cpu", 1)] if known is None else known.configurations("cpu")
    chosen = [Configuration("cpu", n) for n in args.cpus] if args.cpus else tried
    app = args.app or (None if known is None else next(iter(known.app)))

    def ask(image: Path) -> list[dict[str, Any]]:
        rows = questions(image, app, chosen, coarse_points=points, header_only=args.header_only)
        return ask_server(args.url, rows, args.quantile, explained=args.explain)

    return ask


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
    if first["level"] == "header":
        print("  from the header alone: the voxels were not looked at, so the bounds are wider")
    if beyond := sorted({name for a in answers for name in a["beyond"].split()}):
        print(f"  unlike all that was measured in {', '.join(beyond)}: an extrapolation")
    elif not first["calibrated"]:
        print(f"  not calibrated: too few subjects were measured to promise {high}")
