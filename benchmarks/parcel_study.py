"""What a parcel study costs: with and without the cache, in two passes, by cores, and predicted.

Real runs of the applications ``parcel_study`` and ``parcel_ensemble`` on this machine. The spread
of time and memory, and the error of the models, are those of the runs recorded by
``voxcast measure --campaign parcel_study --cluster local``, which are copied beside the result,
so that these two parts are made anew from the copy. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGES = "data/campaigns/parcel_study/images"
PARTS = ("cache", "passes", "cores", "spread", "models")
PIPELINES = ("elastic_net", "support_vectors", "boosting")
SIZES = (50, 200)
ENSEMBLES = ("voting", "grid", "stacked")
# Cells of the two passes: the memory of pairs grows with the square of the parcels.
SMALL_MEANS, LARGE_PAIRS = (20, 100, 400), (500, 700)
# Of the workers, which keep 256 MiB for themselves.
SMALL_BYTES, LARGE_BYTES = 500_000_000, 4 * 10**9
SMALL_REQUEST_BYTES, LARGE_REQUEST_BYTES = 220_000_000, 3 * 10**9
CORE_SETTINGS: tuple[dict[str, Any], ...] = (
    {"parcels": 100, "pipeline": "elastic_net", "target": "gamma"},
    {"parcels": 400, "pipeline": "boosting", "target": "scale"},
)
OUTER_FOLDS, TRIALS = 5, 2
FAMILIES = ("ridge", "boosted", "extra_trees")
DISTINCT = ("parcels", "seed", "features", "pipeline", "target")


def run(module: str, parameters: dict[str, Any], cache: str, threads: int = 1) -> dict[str, Any]:
    """Run an application once; return its result, and what the process took."""
    with tempfile.TemporaryDirectory() as out:
        options = ["--out", out, "--threads", str(threads)]
        options += ["--parameters", json.dumps({"images": IMAGES, **parameters})]
        command = [sys.executable, "-P", "-m", f"voxcast_apps.{module}", *options]
        variables = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        start = time.monotonic()
        process = subprocess.Popen(
            command, env={**os.environ, **variables, "VOXCAST_CACHE": cache},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{module} failed with {parameters}")
        result: dict[str, Any] = json.loads(Path(out, "result.json").read_text(encoding="utf-8"))
    return result | {
        "runtime_s": time.monotonic() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def cache_part() -> dict[str, Any]:
    """Run fits and then ensembles of the same parcellations without a cache, and with one."""
    from voxcast.content_cache import cache_status

    fits: list[dict[str, Any]] = [
        {"parcels": parcels, "pipeline": name} for parcels in SIZES for name in PIPELINES
    ]
    shared = {"parcels": ",".join(map(str, SIZES)), "seeds": 1}
    ensembles = [{**shared, "ensemble": kind} for kind in ENSEMBLES]
    results = {}
    for label in ("without", "with"):
        with tempfile.TemporaryDirectory() as folder:
            cache = f"{folder}/cache" if label == "with" else ""
            single = [run("parcel_study", parameters, cache) for parameters in fits]
            combined = [run("parcel_ensemble", parameters, cache) for parameters in ensembles]
            results[label] = {
                "runs": len(single),
                "volumes_read": sum(result["volumes_read"] for result in single),
                "cpu_s": sum(result["cpu_s"] for result in single),
                "ensembles": len(combined),
                "volumes_read_by_ensembles": sum(result["volumes_read"] for result in combined),
                "cpu_s_of_ensembles": sum(result["cpu_s"] for result in combined),
                "r_squared": {r["ensemble"]: r["r_squared"] for r in combined},
                "r_squared_members": combined[0]["r_squared_members"],
            }
            if cache:
                status = cache_status(Path(cache)).summary()
                results[label] |= {
                    name: status[name] for name in ("hit_rate", "events", "entries", "size_bytes")
                }
    if results["with"]["r_squared"] != results["without"]["r_squared"]:
        raise SystemExit("the cache changed a result")
    return results


def passes_part() -> dict[str, Any]:
    """Run a pool by small workers, and then what they left by a larger one."""
    from voxcast import config
    from voxcast.apps.app import app_version
    from voxcast.jobs.follow import Follower
    from voxcast.jobs.state import task_rows
    from voxcast.jobs.submission import Draw, Plan, Submission
    from voxcast.jobs.task import RequestSequence, Task
    from voxcast.measure.trace import Conditions
    from voxcast.records import Cell, Configuration
    from voxcast.runs.series import runs_in

    app = config.load_app(Path("conf/app"), "parcel_study")
    configuration = Configuration("cpu", 1)
    chosen: list[dict[str, Any]] = [{"parcels": n} for n in SMALL_MEANS]
    chosen += [{"parcels": n, "features": "pairs", "folds": 2} for n in LARGE_PAIRS]
    requests = RequestSequence((600.0,), (SMALL_REQUEST_BYTES, LARGE_REQUEST_BYTES), 1)
    with tempfile.TemporaryDirectory() as folder:
        draw = Draw({app.name: app}, {}, str(Path.cwd()), conditions=Conditions(metronome=False))
        tasks = [
            Task.of_cell(
                Cell(app.name, app_version(app, configuration), {**app.parameters, **parameters},
                     "", "", configuration, "full_scale", 0, ""),
                requests, 10.0,
            )
            for parameters in chosen
        ]  # fmt: skip
        pool = Submission.of_workers(Path(folder) / "pool", Plan(app, tuple(tasks), draw=draw))
        follower = Follower(pool)
        follower.settle()
        results, recorded = [], 0
        for workers, memory_bytes in ((2, SMALL_BYTES), (1, LARGE_BYTES)):
            command = [sys.executable, "-m", "voxcast.jobs.worker", "--pool", str(pool.folder)]
            command += ["--cpus", "1", "--memory", f"{memory_bytes}B", "--time-budget", "30min"]
            variables = {**os.environ, "VOXCAST_CACHE": f"{folder}/cache"}
            start = time.monotonic()
            running = [
                subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
                for _ in range(workers)
            ]
            if any(worker.wait() for worker in running):
                raise SystemExit("a worker failed")
            follower.settle()
            state = follower.state
            counts = Counter(row["status"] for row in task_rows(pool, state, follower.current))
            attempts = [a for name in state.tasks for a in state.attempts(name)]
            failed = Counter(a.outcome for a in attempts if a.outcome != "completed")
            results.append({
                "workers": workers,
                "memory_bytes": memory_bytes,
                "recorded": counts["completed"] - recorded,
                "left": counts["waiting"],
                "given_up": counts["given up"],
                "failed_attempts_so_far": dict(failed),
                "runtime_s": time.monotonic() - start,
            })  # fmt: skip
            recorded = counts["completed"]
        rows = runs_in(pool.out)
        peaks = [float(row.peak_rss_bytes or 0) for row in rows.values()]
    return {
        "cells": len(chosen), "passes": results, "peak_rss_bytes": [min(peaks), max(peaks)]
    }  # fmt: skip


def cores_part() -> list[dict[str, Any]]:
    """Return measured times by cores, the region means being cached."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for parameters in CORE_SETTINGS:
            run("parcel_study", {**parameters, "folds": 2}, f"{folder}/cache")  # fills the cache
            for threads in (1, 2):
                result = run("parcel_study", parameters, f"{folder}/cache", threads)
                measured = {name: result[name] for name in ("runtime_s", "cpu_s")}
                rows.append({**parameters, "cpus": threads, **measured})
    return rows


def spread_part(runs: Path) -> dict[str, Any]:
    """Return the range of time and memory over all recorded runs, and by parameter."""
    import pandas as pd

    from voxcast.runs.store import load_history

    table = load_history([runs])
    table = table[table["outcome"] == "completed"].reset_index(drop=True)
    parameters = pd.DataFrame(map(json.loads, table["parameters_json"]))
    results: dict[str, Any] = {"runs": len(table)}
    for target in ("cpu_s", "peak_rss_bytes"):
        values = table[target].astype(float)
        results[target] = {
            "min": values.min(), "median": values.median(), "max": values.max(),
            "high_over_low": values.max() / values.min(),
            "median_by": {
                name: {
                    str(value): float(group.median())
                    for value, group in values.groupby(parameters[name])
                }
                for name in DISTINCT
            },
        }  # fmt: skip
    cells = table["parameters_json"] + table["cpus"].astype(str)
    repeats = table.groupby(cells)["cpu_s"].agg(["std", "mean", "count"])
    repeats = repeats[repeats["count"] > 1]
    results["repeated_points"] = len(repeats)
    results["repeat_cv_of_cpu_s"] = (
        float((repeats["std"] / repeats["mean"]).median()) if len(repeats) else None
    )
    return results


def models_part(runs: Path) -> dict[str, Any]:
    """Return the error of voxcast's models and of a constant, on points that neither has seen."""
    import pandas as pd

    from voxcast.evaluation import out_of_sample
    from voxcast.evaluation.holdouts import split
    from voxcast.evaluation.recorded_table import of_app, recorded_table
    from voxcast.evaluation.scoring import errors

    table = of_app(recorded_table([runs], lambda subject: False), "parcel_study")
    folds = split(table, "parameters", folds=OUTER_FOLDS, seed=0).folds
    names = ("voxcast", "parameter_effects", "constant")
    predicted: dict[str, list[pd.DataFrame]] = {name: [] for name in names}
    for fold in folds:
        train, test = table.iloc[fold.train], table.iloc[fold.test]
        predicted["voxcast"].append(
            out_of_sample.voxcast_predictions(train, test, families=FAMILIES, trials=TRIALS)
        )
        # The family `median`: a constant, after the effects of levels that all families share.
        predicted["parameter_effects"].append(
            out_of_sample.baseline_predictions(train, test, "constant")
        )
        predicted["constant"].append(constant_predictions(train, test))
    pooled = {name: out_of_sample.pooled(tables) for name, tables in predicted.items()}
    return {
        "runs": len(table), "outer_folds": len(folds),
        "errors": {name: errors(predictions) for name, predictions in pooled.items()},
        "chosen": pooled["voxcast"]["chosen"].value_counts().to_dict(),
        "cpu_s_below_bound": int(
            (pooled["voxcast"]["cpu_s"] <= pooled["voxcast"]["cpu_s_upper"]).sum()
        ),
    }  # fmt: skip


def constant_predictions(train: Any, test: Any) -> Any:
    """Predict the medians of the training runs for every run."""
    from voxcast.evaluation.out_of_sample import run_columns

    medians = {
        f"{target}_median": train[target].median() for target in ("cpu_s", "peak_rss_bytes")
    }
    return run_columns(test).assign(**medians)


def without_nan(value: Any) -> Any:
    """Return a result with None for what could not be computed."""
    if isinstance(value, dict):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def main() -> int:
    """Make the parts that are asked for, and keep the others of the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/parcel_study"))
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--history", type=Path, default=Path("data/history/parcel_study"))
    args = parser.parse_args()
    from voxcast.files import read_json, write_json

    path, runs = args.out / "parcel_study.json", args.out / "runs"
    if args.history.is_dir():
        shutil.rmtree(runs, ignore_errors=True)
        shutil.copytree(args.history, runs, ignore=shutil.ignore_patterns("volumes.npz"))
    results = read_json(path) if path.is_file() else {}
    makers: dict[str, Callable[[], Any]] = {
        "cache": cache_part, "passes": passes_part, "cores": cores_part,
        "spread": lambda: spread_part(runs), "models": lambda: models_part(runs),
    }  # fmt: skip
    for part in args.part or PARTS:
        print(f"{part} …", file=sys.stderr)
        results[part] = without_nan(makers[part]())
        write_json(path, results)
    print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
