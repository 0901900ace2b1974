"""Folders of synthetic runs: records of the real format, synthetic numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast.records import Cell, Configuration, Phase, Profile, as_fields

HOST = {
    "cpu_model": "CPU", "cores": 2, "memory_bytes": 8 * 10**9, "gpu_models": [], "kernel": "6.1",
    "hostname": "node1", "host_id": "00aa11bb",
}  # fmt: skip
PROBES = {"probe_cpu": 1.5, "probe_membw": 10.0, "probe_disk": 0.4}


def cell(repeat: int = 0, **changes: Any) -> Cell:
    configuration = Configuration("cpu", 1)
    default = Cell("app", "1", {"a": 1.5}, "v1", "s1", configuration, "full_scale", repeat, "here")
    return dataclasses.replace(default, **changes)


def write_run(
    folder: Path,
    measured_cell: Cell,
    *,
    name: str | None = None,
    samples: int = 0,
    host_id: str = "00aa11bb",
    **changes: Any,
) -> Path:
    """Write the folder of one run of a cell, with ``changes`` to its profile."""
    phases = (Phase("n4", 0.0, 1.0, 0.9, None),)
    started = f"2026-01-0{9 - measured_cell.repeat % 9}T00:00:00+00:00"
    profile = Profile("completed", 0, 2.0, 1.5, 2**53 + 1, None, "pss", "rusage", started, 9.0)
    profile = dataclasses.replace(profile, phases=phases, **changes)
    run = folder / (name or measured_cell.key)
    run.mkdir(parents=True)
    record = {
        "cell": as_fields(measured_cell),
        "profile": as_fields(profile),
        "host": {**HOST, "host_id": host_id},
        "probes": PROBES,
        "sitting": f"2026-01-01-{host_id}-1",
        "recipe": {"seed": 1, "spacing_mm": [1.0, 1.0, 2.0]},
        "container": None,
    }
    (run / "record.json").write_text(json.dumps(record))
    if samples:
        rows = {
            "t_s": [n / 10 for n in range(samples)],
            "rss_bytes": [100 + (n == samples // 3) * 900 for n in range(samples)],
            "cpu_s": [n / 20 for n in range(samples)],
        }
        pd.DataFrame(rows).to_parquet(run / "samples.parquet", index=False)
    return run
