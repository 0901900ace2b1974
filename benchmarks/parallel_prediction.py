"""How well the runtime of parallel applications is predicted for workloads that were not measured.

Takes the recorded runs of ``voxcast measure --campaign processes``, makes one table for each
application and has ``voxcast learn`` evaluate its models. Workloads are the groups: all runs of
one, on any number of processes, are held out together. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast.files import sha256_of, write_json
from voxcast.runs.store import load_history

TARGET, GROUP = "runtime_s", "workload"
CONFIGURATION = ("oversubscription", "threads_per_process")
NO_FEATURES = ("seed", "checkpoint", "restart", "learning_rate")  # the same in all runs
METRICS = ("mape", "median_ape", "coverage", "asked_over_used", "calibrated")


def table_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run of one application: workload, parameters, allocation, runtime."""
    rows = []
    for parameters_json, cpus, runtime_s in zip(
        runs["parameters_json"], runs["cpus"], runs[TARGET], strict=True
    ):
        parameters = json.loads(parameters_json)
        per_cpu, threads = (parameters.pop(name) for name in CONFIGURATION)
        rows.append({
            GROUP: "w" + sha256_of(parameters)[:8],
            **{name: value for name, value in parameters.items() if name not in NO_FEATURES},
            "cpus": int(cpus),
            "processes": int(cpus) * per_cpu // threads,
            "threads": threads,
            TARGET: float(runtime_s),
        })  # fmt: skip
    return pd.DataFrame(rows)


def evaluated(table: pd.DataFrame, trials: int) -> dict[str, Any]:
    """Return what ``voxcast learn`` says of its models on held-out workloads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.csv")
        table.to_csv(path, index=False)
        options = ["--target", TARGET, "--group", GROUP, "--trials", str(trials)]
        voxcast = [sys.executable, "-m", "voxcast.cli", "learn", str(path), *options]
        completed = subprocess.run(
            [*voxcast, "--out", str(Path(folder, "model")), "--json"],
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
    card = json.loads(completed.stdout)
    by_processes = table.groupby(["processes", "threads"], as_index=False).agg(
        runs=(TARGET, "count"), median_s=(TARGET, "median")
    )
    return {
        "runs": card["rows"],
        "workloads": card["groups"],
        "family": card["family"],
        "features": card["columns"]["used"],
        "errors_are_for": card["errors_are_for"],
        "quantile": card["quantile"],
        "chosen": {name: card["metrics"][name] for name in METRICS},
        "constant": {name: card["candidates"]["median"][name] for name in METRICS},
        "runtime_s": [
            {"processes": row.processes, "threads": row.threads, "runs": row.runs,
             "median": row.median_s}
            for row in by_processes.itertuples()
        ],
    }  # fmt: skip


def main() -> int:
    """Evaluate each application."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=Path, default=Path("data/history/processes"))
    default = Path("results/phases/parallel_prediction.json")
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--trials", type=int, default=5, help="of each family")
    args = parser.parse_args()
    runs = load_history([args.history])
    runs = runs[runs["outcome"] == "completed"]
    results = {}
    for app, of_app in runs.groupby("app"):
        print(f"{app} …", file=sys.stderr)
        results[str(app)] = evaluated(table_of(of_app), args.trials)
        write_json(args.out, results)
    print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
