"""Imported runs as a training table."""

import json
import logging
import math

import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.evaluation.recorded_table import imported_table
from voxcast.runs.table import checked_row, frame_of


def runs(n: int = 6, **changes: object) -> pd.DataFrame:
    rows = [
        checked_row(
            {
                "cell_key": f"{k:02}", "app": "recon", "device": "cpu", "cpus": 2, "repeat": 0,
                "outcome": "completed", "runtime_s": 10.0 + k, "cpu_s": 15.0 + k,
                "peak_rss_bytes": 1000 + k, "subject": f"s{k % 3}", "scale": "full_scale",
                "source": "sacct", "started_at": "2024-05-01T10:00:00",
                "labels_json": json.dumps(
                    {"user": "ab"[k % 2], "job_id": str(k), "state": "COMPLETED",
                     "file_size": 10.0 ** k, "sessions": k % 2}
                ),
            } | changes
        )
        for k in range(n)
    ]  # fmt: skip
    return frame_of(rows)


def test_labels_known_before_a_run_are_features(caplog) -> None:
    with caplog.at_level(logging.INFO):
        table = imported_table(runs(), None, "h")
    features = sorted(name for name in map(str, table) if "." in name)
    assert features == [
        "allocation.gpus", "allocation.log2_cpus", "parameter.log_file_size",
        "parameter.sessions", "parameter.user",
    ]  # fmt: skip
    assert table["allocation.log2_cpus"].tolist() == [1.0] * 6
    assert table["parameter.log_file_size"].tolist() == pytest.approx(
        [k * math.log(10) for k in range(6)]
    )
    assert table["subject"].tolist() == ["s0", "s1", "s2"] * 2
    assert "labels that are not features: job_id, state" in caplog.text
    assert list(imported_table(runs(), ["user"], "h").filter(like="parameter.")) == [
        "parameter.user"
    ]


def test_a_number_that_some_runs_lack_is_unknown_in_them() -> None:
    table = runs()
    table.loc[2, "labels_json"] = '{"user": "a"}'
    features = imported_table(table, None, "h")
    assert features["parameter.sessions"].isna().tolist() == [False, False, True] + [False] * 3


def test_wall_time_stands_for_a_cpu_time_that_is_mostly_unknown(caplog) -> None:
    table = runs()
    table.loc[:2, "cpu_s"] = float("nan")
    mixed = imported_table(table, None, "h")
    assert mixed["cpu_s"].tolist() == mixed["runtime_s"].tolist()
    assert "wall time is predicted directly" in caplog.text
    many = runs(20)
    many.loc[0, "cpu_s"] = float("nan")
    assert len(imported_table(many, None, "h")) == 19
    assert "1 of 20 completed runs lack memory or CPU time" in caplog.text


def test_runs_without_subject_are_subjects(caplog) -> None:
    table = imported_table(runs(subject="", cpus=0), None, "h")
    assert table["subject"].nunique() == 6
    assert table["cpus"].tolist() == [1] * 6
    assert "6 runs have no subject" in caplog.text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"outcome": "cancelled"}, "recon: none of 6 runs completed"),
        ({"peak_rss_bytes": None}, "recon: none of 6 completed runs has a peak memory"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(TableError) as error:
        imported_table(runs(**changes), None, "h")
    assert str(error.value) == f"h: has no run to replay ({problem})"
