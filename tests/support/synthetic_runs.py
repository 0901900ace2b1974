"""Folders of synthetic runs: records of the real format, synthetic numbers."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from voxcast.measure.record import Sitting, base_of
from voxcast.records import Cell, Configuration, Phase, as_fields

HOST = {
    "cpu_model": "CPU", "cores": 2, "memory_bytes": 8 * 10**9, "gpu_models": [], "kernel": "6.1",
    "hostname": "node1", "host_id": "00aa11bb",
}  # fmt: skip


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
    phases: Sequence[Phase] = (Phase("n4", 0.0, 1.0, 0.9, None),),
    **changes: Any,
) -> Path:
    """Write the folder of one run of a cell, with ``changes`` to its measured fields."""
    host, recipe = {**HOST, "host_id": host_id}, {"seed": 1, "spacing_mm": [1.0, 1.0, 2.0]}
    sitting = Sitting(f"2026-01-01-{host_id}-1", 1, host)
    measured = {
        "outcome": "completed", "exit_status": 0, "runtime_s": 2.0, "cpu_s": 1.5,
        "peak_rss_bytes": 2**53 + 1, "memory_method": "pss", "cpu_method": "rusage",
        "started_at": f"2026-01-0{9 - measured_cell.repeat % 9}T00:00:00+00:00", "limit_s": 9.0,
    }  # fmt: skip
    base = base_of(measured_cell, sitting, recipe)
    run = folder / (name or measured_cell.key)
    run.mkdir(parents=True)
    record = {
        "run": as_fields(dataclasses.replace(base, **{**measured, **changes})),
        "cell": as_fields(measured_cell),
        "phases": [as_fields(phase) for phase in phases],
        "host": host,
        "recipe": recipe,
        "container": None,
        "versions": {"voxcast": "1.2.3"},
    }
    (run / "run.json").write_text(json.dumps(record))
    if samples:
        columns = {
            "t_s": np.arange(samples) / 10,
            "rss_bytes": np.full(samples, 100),
            "cpu_s": np.arange(samples) / 20,
        }
        columns["rss_bytes"][samples // 3] += 900
        np.savez(run / "samples.npz", **columns)
    return run
