"""The column maps of other schedulers that come as examples, on small exports."""

from pathlib import Path

import pytest

from voxcast.runs import csv_table
from voxcast.runs.csv_table import load_map

EXAMPLES = Path(__file__).parents[3] / "examples" / "schedulers"
NAMES = ("outcome", "runtime_s", "cpu_s", "peak_rss_bytes", "cpus", "limit_s")
RUNS = {
    "qacct": [("completed", 600, 1100.078, 1610612736, 2, None),
              ("timeout", 86401, 80000.7, 3328599654, 1, None)],
    "pbs": [("completed", 1841, 6300, 2031040 * 1024, 4, 3600),
            ("cancelled", 60, 30, 102400 * 1024, 1, 3600)],
    "bacct": [("completed", 900, 1500.5, 2**30, 2, 3600),
              ("timeout", 3601, 1500.5, 2**31, 2, 3600)],
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_an_export_is_read_by_its_map(name: str) -> None:
    reading = csv_table.read(EXAMPLES / f"{name}.csv", None, load_map(EXAMPLES / f"{name}.yaml"))
    assert [tuple(row[n] for n in NAMES) for row in reading.rows] == RUNS[name]
    for remarks in (reading.refused, reading.skipped, reading.unread):
        assert not remarks.listed()
