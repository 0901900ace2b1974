"""How well `voxcast learn` holds its time budget, on a large table of mixed columns; prints JSON.

python benchmarks/fit_budget.py [--budget S] [--rows N] [--columns N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from timing import machine, seconds

BOUND = 1.1  # times the budget
TEXTS = 4  # columns of text; the others are numbers


def table(rows: int, columns: int, seed: int = 0) -> pd.DataFrame:
    """Return runs of programs on machines, whose time hangs on some of many columns."""
    rng = np.random.default_rng(seed)
    content: dict[str, Any] = {
        f"size_{n}": rng.lognormal(3, 1, rows) for n in range(columns - TEXTS)
    }
    effect = np.zeros(rows)
    for n in range(TEXTS):
        codes = rng.integers(0, 5 * 4**n, rows)
        content[f"option_{n}"] = np.char.add("v", codes.astype(str))
        effect += rng.normal(0, 0.3, 5 * 4**n)[codes]
    frame = pd.DataFrame(content)
    scale = 0.02 * frame["size_0"] + 0.001 * frame["size_1"] * frame["size_2"]
    frame["runtime_s"] = scale * np.exp(effect + rng.normal(0, 0.1, rows))
    return frame


def main() -> int:
    """Print the wall time of one fit over its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=120.0, metavar="S")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=30)
    args = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        table(args.rows, args.columns).to_csv(path, index=False)
        voxcast = str(Path(sys.executable).with_name("voxcast"))
        command = [
            voxcast, "learn", str(path), "--target", "runtime_s",
            "--time-budget", f"{args.budget:g}s", "--out", str(Path(folder) / "model"), "--json",
        ]  # fmt: skip
        wall_s = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    figures = {
        "rows": args.rows, "columns": args.columns, "budget_s": args.budget, "wall_s": wall_s,
        "over_budget": wall_s / args.budget, "bound_over_budget": BOUND, "machine": before,
    }  # fmt: skip
    print(json.dumps(figures))
    return 0 if figures["over_budget"] <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
