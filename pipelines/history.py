"""What the recorded histories say before anything is learned: results/history.

The noise floor, drift between sittings, CPUs against each other, CPU against GPU.
"""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast.analysis.devices import missing_side
from voxcast.analysis.drift import drift
from voxcast.analysis.noise import Noise, compare_cpus, repeat_noise
from voxcast.errors import exits_cleanly
from voxcast.files import write_json
from voxcast.history.parts import load_history
from voxcast.laws.intervals import Interval
from voxcast.records import TARGETS

HISTORY = Path("data/history")
OUT = Path("results/history")


@exits_cleanly
def main() -> int:
    """Write a file for each recorded history."""
    for batch in sorted(path.parent for path in HISTORY.glob("*/provenance.yaml")):
        runs = load_history([batch])
        completed = runs[runs["outcome"] == "completed"]
        found = {
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
            "noise": [_noise(one) for one in repeat_noise(completed, ["app"])],
            "noise_of_applications_with_an_image": [
                _noise(one) for one in repeat_noise(completed[completed["volume_id"] != ""])
            ],
            "cpus": [
                {
                    "app": one.app, "scale": one.scale, "cpus": [one.base_cpus, one.cpus],
                    "speedup": _interval(one.speedup), "cpu_ratio": _interval(one.cpu_ratio),
                }
                for one in compare_cpus(completed)
            ],
            "drift": _drift(completed),
            "cpu_against_gpu": missing_side(runs) or "see `voxcast compare --by device`",
        }  # fmt: skip
        write_json(OUT / f"{batch.name}.json", found)
        print(f"{OUT / batch.name}.json: {len(runs)} runs")
    return 0


def _cells(runs: pd.DataFrame) -> list[dict[str, Any]]:
    groups = runs.groupby(["app", "scale", "device", "cpus"], as_index=False)
    found = groups.agg(
        runs=("cell_key", "size"), volumes=("volume_id", "nunique"),
        cpu_s_median=("cpu_s", "median"), cpu_s_min=("cpu_s", "min"), cpu_s_max=("cpu_s", "max"),
        peak_rss_bytes_median=("peak_rss_bytes", "median"),
    )  # fmt: skip
    return json.loads(found.to_json(orient="records"))


def _noise(one: Noise) -> dict[str, Any]:
    return {
        "app": one.app,
        "cells": one.cells,
        "runs": one.runs,
        "cv_percent": {target: _interval(one.cv[target]) for target in TARGETS},
        # What a model without fault would be left with.
        "error_percent": {target: round(one.error_percent(target), 3) for target in TARGETS},
    }


def _drift(runs: pd.DataFrame) -> list[dict[str, Any]]:
    found = drift(runs)
    anchors = [] if found is None else found.anchors
    return [
        {"app": one.app, "cpus": one.configuration.cpus}
        | {"change": [round(value, 4) for value in one.change.values()]}
        for one in anchors
    ]


def _interval(one: Interval) -> dict[str, float | int | None]:
    return {
        name: round(value, 4) if math.isfinite(value) else None
        for name, value in asdict(one).items()
    }


if __name__ == "__main__":
    sys.exit(main())
