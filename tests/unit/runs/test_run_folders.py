import pandas as pd

from synthetic_runs import cell, write_run
from voxcast.runs.series import load_records, write_tables_of
from voxcast.runs.table import DTYPES


def test_records_become_rows_in_the_order_they_were_started(tmp_path):
    runs = [write_run(tmp_path / "runs", cell(repeat)) for repeat in range(3)]
    written = write_tables_of(tmp_path / "runs", tmp_path)
    read = pd.read_parquet(tmp_path / "runs.parquet")
    pd.testing.assert_frame_equal(written, read)
    assert read["cell_key"].tolist() == [run.name for run in reversed(runs)]
    assert read.dtypes.astype(str).to_dict() == DTYPES
    assert read["peak_rss_bytes"].tolist() == [2**53 + 1] * 3  # no float has been in between
    assert read["parameters_json"].tolist() == ['{"a":1.5}'] * 3
    assert read["recipe_json"].tolist() == ['{"seed":1,"spacing_mm":[1.0,1.0,2.0]}'] * 3
    assert read["host_id"].tolist() == ["00aa11bb"] * 3
    assert read["peak_cgroup_bytes"].isna().all()


def test_foreign_and_broken_folders_are_reported_and_skipped(tmp_path, caplog):
    good = write_run(tmp_path, cell())
    write_run(tmp_path, cell(1), name="renamed")
    write_run(tmp_path, cell(2), runtime_s="long")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.json").write_text('{"cell": {"app"')
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "run.json").write_text("[]")
    (tmp_path / "notes").mkdir()
    (tmp_path / ".partial-x").mkdir()
    (tmp_path / "readme.txt").write_text("mine")
    assert load_records(tmp_path)["cell_key"].tolist() == [good.name]
    warnings = caplog.messages
    assert len(warnings) == 5
    assert any("renamed: has the record of another cell" in line for line in warnings)
    assert any("notes: has no record" in line for line in warnings)
