import dataclasses
import json

import pandas as pd

from voxcast.profiling.history import DTYPES, load_records, write_profiles
from voxcast.records import Cell, Configuration, Phase, Profile


def _record(folder, repeat=0, name=None, **changes):
    configuration = Configuration("cpu", 1)
    cell = Cell("app", "1", {"a": 1.5}, "v1", "s1", configuration, "full_scale", repeat, "here")
    phases = (Phase("n4", 0.0, 1.0, 0.9, None),)
    started = f"2026-01-0{9 - repeat}T00:00:00+00:00"
    profile = Profile("completed", 0, 2.0, 1.5, 2**53 + 1, None, "pss", "rusage", started, 9.0)
    profile = dataclasses.replace(profile, phases=phases, **changes)
    run = folder / (name or cell.key)
    run.mkdir(parents=True)
    record = {"cell": dataclasses.asdict(cell), "profile": dataclasses.asdict(profile)}
    (run / "record.json").write_text(json.dumps(record))
    return run


def test_no_records_give_an_empty_table_with_all_columns_and_the_reason(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        assert load_records(folder).dtypes.astype(str).to_dict() == DTYPES
    write_profiles(tmp_path / "gpu", ["there is no GPU here"])
    read = pd.read_parquet(tmp_path / "gpu" / "profiles.parquet")
    assert list(read.columns) == list(DTYPES)
    assert len(read) == 0
    assert read.attrs["notes"] == ["there is no GPU here"]


def test_records_become_rows_in_the_order_they_were_started(tmp_path):
    runs = [_record(tmp_path, repeat) for repeat in range(3)]
    written = write_profiles(tmp_path)
    read = pd.read_parquet(tmp_path / "profiles.parquet")
    pd.testing.assert_frame_equal(written, read)
    assert read["cell_key"].tolist() == [run.name for run in reversed(runs)]
    assert read.dtypes.astype(str).to_dict() == DTYPES
    assert read["peak_rss_bytes"].tolist() == [2**53 + 1] * 3  # no float has been in between
    assert read["parameters_json"].tolist() == ['{"a":1.5}'] * 3
    assert read["peak_cgroup_bytes"].isna().all()


def test_foreign_and_broken_folders_are_named_and_left_out(tmp_path, capsys):
    good = _record(tmp_path)
    _record(tmp_path, 1, name="renamed")
    _record(tmp_path, 2, runtime_s="long")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "record.json").write_text('{"cell": {"app"')
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "record.json").write_text("[]")
    (tmp_path / "notes").mkdir()
    (tmp_path / ".partial-x").mkdir()
    (tmp_path / "readme.txt").write_text("mine")
    assert load_records(tmp_path)["cell_key"].tolist() == [good.name]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5
    assert any("renamed: holds the record of another cell" in line for line in said)
    assert any("notes: holds no record" in line for line in said)
