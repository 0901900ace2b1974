"""Figures of jobs: each job once, escaped names, the same bytes for the same data."""

import xml.etree.ElementTree as ET

import pandas as pd

from voxcast.report.canvas import standalone
from voxcast.report.figures import coverage_by_month, requested_against_used


def test_many_jobs_are_drawn_as_groups_and_counted() -> None:
    n = 5000
    jobs = pd.DataFrame({
        "outcome": ["completed"] * (n - 1) + ["timeout"], "limit_s": 7200.0,
        "runtime_s": [600.0 + k % 3000 for k in range(n - 1)] + [7200.0],
        "mem_limit_bytes": 8e9, "peak_rss_bytes": float("nan"), "all_memory": False,
    })  # fmt: skip
    svg = standalone(requested_against_used(jobs))
    ET.fromstring(svg)  # noqa: S314  # our own
    assert "4,999 completed" in svg
    assert "1 not completed" in svg
    assert len(svg) < 60_000
    assert svg == standalone(requested_against_used(jobs))
    assert "used memory" in svg  # of which nothing is known


def test_coverage_names_applications_and_states_the_bound() -> None:
    month = {
        "month": "2026-11", "app": "<b>$x^$", "target": "runtime_s", "basis": "submission",
        "stated": 0.95, "subjects": 8, "share_within": 7 / 8, "low": 0.47, "high": 0.99,
    }  # fmt: skip
    svg = standalone(coverage_by_month(pd.DataFrame([month])))
    ET.fromstring(svg)  # noqa: S314  # our own
    assert "<b>" not in svg
    assert "bounds of 95 %" in svg
    assert "wall time 88 %" in svg
