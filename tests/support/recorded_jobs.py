"""Rows of jobs as `voxcast status --collect` records them, with what they were predicted."""

import json
from typing import Any

from voxcast.runs.table import checked_row

PREDICTION = {
    "predicted_runtime_s": 10.0, "upper_runtime_s": 15.0, "predicted_peak_rss_bytes": 2e8,
    "upper_peak_rss_bytes": 3e8, "confidence": 0.95,
}  # fmt: skip


def job_row(n: int, started_at: str, runtime_s: float, **values: Any) -> dict[str, Any]:
    """Return a completed job of subject ``n``, which requested 20 s and 400 MB."""
    labels = PREDICTION | {"submission": "s", "task": f"t{n}"}
    return checked_row(
        {
            "cell_key": f"job-{n}-{started_at}", "app": "segment", "source": "submit",
            "outcome": "completed", "device": "cpu", "cpus": 1, "gpus": 0, "subject": f"{n:03}",
            "scale": "full_scale", "host_class": "here", "runtime_s": runtime_s, "cpu_s": 9.0,
            "peak_rss_bytes": 250_000_000, "limit_s": 20.0, "mem_limit_bytes": 400_000_000,
            "started_at": started_at, "labels_json": json.dumps(labels), **values,
        }
    )  # fmt: skip


def measured_row(volume: int, cpus: int, runtime_s: float, **values: Any) -> dict[str, Any]:
    """Return a run of a campaign on a volume, each of a subject of its own."""
    return job_row(
        volume, "2026-01-05T00:00:00+00:00", runtime_s, source="measured", labels_json="",
        cell_key=f"run-{volume}-{cpus}", volume_id=f"v{volume}", cpus=cpus, **values,
    )  # fmt: skip
