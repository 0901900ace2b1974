"""``voxcast compare --by device``: CPU against GPU, by application and phase."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.pricing import Prices
from voxcast.cli import project
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from voxcast.analysis.devices import DeviceComparison

LEAST = 3


def main(argv: list[str]) -> int:
    """Print the comparison, or say which side has no runs."""
    parser = argparse.ArgumentParser(prog="voxcast compare", description=__doc__)
    parser.add_argument("--by", choices=["device"], default="device")
    parser.add_argument(
        "--history",
        type=Path,
        nargs="+",
        help="folders of runs (default: the project's data/history and data/runs)",
    )
    for name in ("core", "gpu"):
        default = getattr(Prices, f"usd_per_{name}_hour")
        parser.add_argument(
            f"--usd-per-{name}-hour", type=float, default=default, metavar="USD",
            help=f"price of an hour ({default:g})",
        )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    project.add_argument(parser)
    args = parser.parse_args(argv)

    if not (args.usd_per_core_hour >= 0 and args.usd_per_gpu_hour >= 0):
        parser.error("a price cannot be negative")

    from voxcast.analysis.composed_runs import COMPOSITIONS
    from voxcast.analysis.devices import compare_devices, missing_side
    from voxcast.analysis.runs_on_record import runs_on_record

    if args.history:
        runs, phases = runs_on_record(args.history)
    else:
        here = project.require(args.project)
        folders = [here / "data" / "history", here / "data" / "runs"]
        runs, phases = runs_on_record(folders, named=False)
    prices = Prices(args.usd_per_core_hour, args.usd_per_gpu_hour)
    missing = missing_side(runs)
    found = [] if missing else compare_devices(runs, phases, prices, compositions=COMPOSITIONS)
    if args.json:
        rows = [_json(one) for one in found]
        content = {"runs": len(runs), "missing": missing, "prices": vars(prices)}
        print(json.dumps({**content, "comparisons": rows}, indent=2, allow_nan=False))
        return 0
    if missing or not found:
        print(missing or "no piece of work was run on both devices")
        return 0
    for one in found:
        print(_text(one))
    print(
        f"voxcast: {len(runs)} runs on record; {prices.usd_per_core_hour:g} USD a core-hour, "
        f"{prices.usd_per_gpu_hour:g} USD a GPU-hour; intervals: 95 %, bootstrap over subjects",
        file=sys.stderr,
    )
    return 0


def _text(one: DeviceComparison) -> str:
    from voxcast.report.formatting import amount, counted, percent

    pairs, speedup, cv, memory = one.pairs, one.speedup, one.cv_percent, one.memory_bytes
    interval = f"{speedup.low:.3g} to {speedup.high:.3g}" if speedup.bounded else "no interval"
    lines = [
        f"{one.label}: {speedup.value:.3g}× on the GPU "
        f"({interval}; {counted(len(pairs), 'pair')})",
        f"  on {one.machines}",
        f"  median {format_seconds(pairs['cpu_s'].median())} on the CPU, "
        f"{format_seconds(pairs['gpu_s'].median())} on the GPU",
        f"  CV of repeats {percent(cv[0])} on the CPU, {percent(cv[1])} on the GPU",
        f"  memory {amount('peak_rss_bytes', memory[0])}, "
        f"GPU memory {amount('peak_gpu_bytes', memory[1])}",
        f"  {1000 * one.usd[0]:.2g} USD a 1000 runs on the CPU, {1000 * one.usd[1]:.2g} USD on "
        "the GPU",
        f"  gain least: {'; '.join(one.least(LEAST))}",
    ]
    if one.composed:
        lines.insert(1, "  composed of CPU phases and the GPU's phase, never run as a whole")
    return "\n".join(lines)


def _json(one: DeviceComparison) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    return {
        "app": one.app,
        "phase": one.phase or None,
        "scale": one.scale,
        "cpus": one.cpus,
        "gpu_cpus": one.gpu_cpus,
        "gpus": one.gpus,
        "composed": one.composed,
        "hosts": list(one.hosts),
        "pairs": len(one.pairs),
        "speedup": one.speedup.value,
        "speedup_low": known(one.speedup.low),
        "speedup_high": known(one.speedup.high),
        "cv_percent": [known(v) for v in one.cv_percent],
        "memory_bytes": [known(v) for v in one.memory_bytes],
        "usd": list(one.usd),
        "least": one.pairs.head(LEAST).to_dict("records"),
    }
