"""Records: keys and records written before a field was renamed stay valid."""

import dataclasses
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from voxcast.records import (
    Cell,
    Configuration,
    Phase,
    Prediction,
    Request,
    Run,
    as_fields,
    of_fields,
)
from voxcast.runs.series import read_record

HISTORY = Path(__file__).parents[2] / "data" / "history"
CONFIGURATION = Configuration(
    "gpu", 2, gpus=1, mem_limit_bytes=8 * 10**9, node_type="fat", container_engine="apptainer"
)
CELL = Cell("segment", "1", {"classes": 3}, "v", "s", CONFIGURATION, "full_scale", 0, "here")
# As written before `container_engine`, `mem_limit_bytes` and `time_limit_s` had these names.
KEY = "fbcb33e556ace17aca4f918274cc6fea9f7cd22f58ee2aec667e31beb9e81883"
RECORD = {
    "cell": {
        "app": "segment", "app_version": "1", "parameters": {"classes": 3}, "volume_id": "v",
        "subject": "s", "scale": "full_scale", "repeat": 0, "host_class": "here",
        "configuration": {
            "device": "gpu", "cpus": 2, "gpus": 1, "memory_bytes": 8 * 10**9,
            "node_type": "fat", "runtime": "apptainer",
        },
    },
    "run": {
        "cell_key": KEY, "app": "segment", "outcome": "completed", "runtime_s": 2.0,
        "limit_s": 60.0,
    },
    "phases": [
        {"name": "n4", "start_s": 0.0, "end_s": 1.0, "cpu_s": 0.9, "peak_rss_bytes": None}
    ],
    "host": {"host_id": "00aa11bb"}, "probes": {}, "recipe": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "part", sorted(HISTORY.glob("*/*/runs.parquet")), ids=lambda p: p.parent.name
)
def test_keys_of_recorded_runs_follow_from_their_stored_fields(part):
    runs = pd.read_parquet(part)
    for row in runs[runs["source"] == "measured"].to_dict("records"):  # no jobs, no imports
        mem_limit_bytes = None if pd.isna(row["mem_limit_bytes"]) else int(row["mem_limit_bytes"])
        configuration = Configuration(
            row["device"], row["cpus"], row["gpus"], mem_limit_bytes, row["node_type"]
        )
        cell = Cell(
            row["app"], row["app_version"], json.loads(row["parameters_json"]), row["volume_id"],
            row["subject"], configuration, row["scale"], row["repeat"], row["host_class"],
        )  # fmt: skip
        assert cell.key == row["cell_key"]


def test_the_key_uses_the_recorded_names():
    assert CELL.key == KEY


def test_a_record_with_the_earlier_names_is_read(tmp_path):
    run = tmp_path / KEY
    run.mkdir()
    (run / "run.json").write_text(json.dumps(RECORD))
    record = read_record(run)
    assert record.cell == CELL
    assert (record.run.limit_s, record.phases[0].name) == (60.0, "n4")


def test_records_are_written_under_the_recorded_names():
    assert as_fields(CELL) == RECORD["cell"]
    run = of_fields(Run, RECORD["run"])
    assert of_fields(Run, as_fields(run)) == run


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (Phase, {"name": "n4", "start_s": 0.0, "end_s": 1.0, "colour": 1}, "has no field colour"),
        (Phase, {"name": "n4", "start_s": 0.0}, "end_s is missing"),
        (Phase, {"name": 4, "start_s": 0.0, "end_s": 1.0}, "name is 4, expected str"),
        (Request, {"walltime_s": 60.0, "memory_bytes": True}, "memory_bytes is True"),
        (Cell, [], "expected the fields of Cell"),
    ],
)
def test_fields_that_are_no_record_are_refused(cls, fields, message):
    with pytest.raises(ValueError, match=message):
        of_fields(cls, fields)


def test_numbers_that_are_not_finite_are_written_as_null():
    prediction = Prediction(9.0, math.nan, 3e8, math.nan)
    fields = json.loads(json.dumps(as_fields(prediction), allow_nan=False))
    assert math.isnan(of_fields(Prediction, fields).runtime_s_upper)


def test_a_run_has_the_columns_of_the_history():
    recorded = pd.read_parquet(next(HISTORY.glob("days/*/runs.parquet")))
    assert [f.name for f in dataclasses.fields(Run)] == list(recorded.columns)
