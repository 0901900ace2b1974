"""Coverage by application, device and quartile."""

import pandas as pd

from voxcast.records import TARGETS
from voxcast.report.coverage import coverage_table


def test_each_application_is_counted_separately() -> None:
    runs = pd.DataFrame(
        {"app": ["a"] * 4 + ["b"] * 2, "device": "cpu", "subject": list("wxyzwx")}
        | {f"{target}_actual": [1.0, 2, 3, 4, 5, 6] for target in TARGETS}
        | {f"{target}_median": [1.0, 2, 3, 4, 5, 6] for target in TARGETS}
        | {f"{target}_upper": [1.5, 2.5, 3.5, 3.9, 5.5, 6.5] for target in TARGETS}
    )
    table = coverage_table(runs)
    assert table is not None
    assert len(table.rows) == 2 * (len(TARGETS) + 1)
    assert table.rows[0][0].startswith("a on cpu: ")
    assert table.rows[0][1] == "3 of 4 (19 to 99 %)"
    assert table.rows[0][2] == "1/1 · 1/1 · 1/1 · 0/1"
    together = ["a on cpu: all of them together", "3 of 4 (19 to 99 %)", ""]
    assert table.rows[len(TARGETS)] == together
    assert table.rows[len(TARGETS) + 1][1].startswith("2 of 2")
    assert coverage_table(runs.head(0)) is None
