"""The picture of drift, drawn from jobs and features with planted changes."""

from __future__ import annotations

import dataclasses
import json
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd

from voxcast.analysis.drift import feature_shifts
from voxcast.analysis.job_drift import (
    Coverage,
    CoverageWindow,
    JobDrift,
    MachineDrift,
    coverage_of,
    last_jobs,
)
from voxcast.report.drift_picture import drift_picture

SVG = "{http://www.w3.org/2000/svg}"


def planted_drift() -> JobDrift:
    """Return the drift of 80 jobs: three in ten of the newest forty are above their bounds."""
    rng = np.random.default_rng(7)
    rows = []
    for n in range(80):
        is_above = n >= 40 and n % 10 < 3
        labels = {
            "predicted_runtime_s": 10.0, "upper_runtime_s": 15.0, "upper_peak_rss_bytes": 2e9,
            "confidence": 0.95, "submission": "s", "task": f"t{n}",
        }  # fmt: skip
        rows.append(
            {
                "cell_key": str(n), "app": "tool", "subject": f"{n:03}", "outcome": "completed",
                "runtime_s": 20.0 if is_above else 10.0, "peak_rss_bytes": 1e9,
                "started_at": f"2026-{1 + n // 20:02}-{1 + n % 20:02}T00:00:00+00:00",
                "labels_json": json.dumps(labels),
            }
        )  # fmt: skip
    jobs = last_jobs(pd.DataFrame(rows), 100)
    coverage = {a: c for a in ("runtime_s", "peak_rss_bytes") if (c := coverage_of(jobs, a))}
    before = pd.DataFrame(
        {"voxels": rng.normal(10, 1, 100), "spacing_mm": rng.normal(1, 0.1, 100)}
    )
    since = pd.DataFrame({"voxels": rng.normal(13, 1, 80), "spacing_mm": rng.normal(1, 0.1, 80)})
    machines = (
        MachineDrift("019699fc", 60, 0.88, 0.91, (0.82, 1.0), 0.5),
        MachineDrift("4be1<&>7", 20, 1.0, 0.6, (0.52, 0.7), 1e-6, drifted=True),
    )
    shifts = tuple(feature_shifts(before, since, 0.01))
    return JobDrift(80, 80, coverage, {}, machines, shifts)


def test_the_picture_shows_each_application_with_its_verdict() -> None:
    drift = planted_drift()
    assert drift.drifted == ["the speed of machine 4be1<&>7", "the feature voxels"]
    by_app = {"tool": drift, "a <new> $tool": JobDrift(0, 0, {}, {})}
    text = drift_picture(by_app)
    root = ET.fromstring(text)  # noqa: S314  # written by us
    assert root.tag == f"{SVG}svg"
    words = [" ".join("".join(node.itertext()).split()) for node in root.iter(f"{SVG}text")]
    for line in ("tool: drifted", "a <new> $tool: too little data", "voxels", "2026-04-01"):
        assert line in words
    assert words.count("no newer job to compare") == 2
    assert words.count("no job tells of a bound") == 1
    assert "currentColor" in text
    assert text == drift_picture(by_app)  # the same bytes for the same data


def test_windows_of_one_day_are_told_apart() -> None:
    window = CoverageWindow("2026-04-01T10:07:00+00:00", "", 3, 4, (0.2, 0.99))
    later = dataclasses.replace(window, first="2026-04-01T12:30:00+00:00")
    coverage = Coverage(0.95, 6, 8, (0.3, 0.97), 0.06, (window, later))
    root = ET.fromstring(drift_picture({"a": JobDrift(8, 8, {"runtime_s": coverage}, {})}))  # noqa: S314
    words = [word for node in root.iter(f"{SVG}text") for word in node.itertext()]
    assert {"2026-04-01", "10:07", "12:30"} <= {word.strip() for word in words}
