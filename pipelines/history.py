"""Stage history: statistics of the recorded histories, without any model.

Noise floor, speed-up by number of CPUs, CPU against GPU.
"""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast.allocation.site import Prices
from voxcast.analysis.devices import CpuComparison, compare_cpus, compare_devices
from voxcast.analysis.run_groups import RepeatNoise, repeat_noise
from voxcast.errors import exits_cleanly
from voxcast.files import write_json
from voxcast.laws.intervals import Interval
from voxcast.records import TARGETS
from voxcast.runs.speed import at_usual_speed, speed_deviations
from voxcast.runs.store import load_history, load_phases

HISTORY = Path("data/history")
OUT = Path("results/history")


@exits_cleanly
def main() -> int:
    """Write a file for each recorded history."""
    batches = sorted(path.parent for path in HISTORY.glob("*/provenance.yaml"))
    # Of all batches at once: what is usual on a machine, and how a run depends on its speed.
    on_record = load_history(batches)
    speeds = speed_deviations(on_record[on_record["outcome"] == "completed"], load_phases(batches))
    for batch in batches:
        runs = load_history([batch])
        completed = runs[runs["outcome"] == "completed"]
        normalised = at_usual_speed(completed, speeds)
        gauges = speeds.loc[speeds.index.isin(completed["cell_key"]), "gauge"]
        statistics = {
            "runs": len(runs),
            "outcomes": runs["outcome"].value_counts().to_dict(),
            "noisy": int(runs["noisy"].sum()),
            "steal_of_cpu_time": {
                "runs": int((runs["steal"] > 0).sum()),
                "most": round(float(runs["steal"].max()), 4),
            },
            "cpu_hours": round(float(runs["cpu_s"].sum()) / 3600, 2),
            "hosts": sorted(runs["host_class"].unique()),
            "sittings": int(runs["sitting"].nunique()),
            "cells": _cells(completed),
            "noise": _noise_by_app(completed),
            # At the usual speed of the machine, as the gauge beside each run tells it.
            "speed_normalised": {
                "gauges": gauges[gauges != ""].value_counts().to_dict(),
                "noise": _noise_by_app(normalised),
            },
            "cpus": [_cpus(comparison) for comparison in compare_cpus(completed)],
            "cpu_against_gpu": _devices(completed, load_phases([batch])),
        }
        write_json(OUT / f"{batch.name}.json", statistics)
        print(f"{OUT / batch.name}.json: {len(runs)} runs")
    return 0


def _cells(runs: pd.DataFrame) -> list[dict[str, Any]]:
    groups = runs.groupby(["app", "scale", "device", "cpus"], as_index=False)
    cells = groups.agg(
        runs=("cell_key", "size"), volumes=("volume_id", "nunique"),
        cpu_s_median=("cpu_s", "median"), cpu_s_min=("cpu_s", "min"), cpu_s_max=("cpu_s", "max"),
        peak_rss_bytes_median=("peak_rss_bytes", "median"),
    )  # fmt: skip
    rows: list[dict[str, Any]] = json.loads(cells.to_json(orient="records"))
    return rows


def _cpus(comparison: CpuComparison) -> dict[str, Any]:
    return {
        "app": comparison.app,
        "scale": comparison.scale,
        "cpus": [comparison.base_cpus, comparison.cpus],
        "speedup": _interval(comparison.speedup),
        "cpu_ratio": _interval(comparison.cpu_ratio),
    }


def _noise_by_app(runs: pd.DataFrame) -> list[dict[str, Any]]:
    return [_noise(noise) for noise in repeat_noise(runs, ["app"])]


def _noise(noise: RepeatNoise) -> dict[str, Any]:
    return {
        "app": noise.app,
        "cells": noise.cells,
        "runs": noise.runs,
        "cv_percent": {target: _interval(noise.cv[target]) for target in TARGETS},
        # The noise floor of models that predict the mean of the repeats.
        "error_percent": {target: round(noise.error_percent(target), 3) for target in TARGETS},
    }


def _devices(runs: pd.DataFrame, phases: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "app": comparison.app,
            "phase": comparison.phase,
            "cpus": [comparison.cpus, comparison.gpu_cpus],
            "pairs": len(comparison.pairs),
            "seconds": [round(comparison.pairs[side].median(), 4) for side in ("cpu_s", "gpu_s")],
            "speedup": _interval(comparison.speedup),
            "memory_bytes": [n if math.isfinite(n) else None for n in comparison.memory_bytes],
            "usd_per_1000_runs": [round(1000 * usd, 4) for usd in comparison.usd],
        }
        for comparison in compare_devices(runs, phases, Prices())
    ]


def _interval(interval: Interval) -> dict[str, float | int | None]:
    return {
        name: round(value, 4) if math.isfinite(value) else None
        for name, value in asdict(interval).items()
    }


if __name__ == "__main__":
    sys.exit(main())
