import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.phases.logged import phase_summary, phase_table
from voxcast.records import Phase
from voxcast.runs.table import PHASE_DTYPES


def _record(folder, repeat, n4_s=3.0, atropos_s=1.0):
    n4, atropos = Phase("n4", 1.0, 1.0 + n4_s, 0.5), Phase("atropos", 4.0, 4.0 + atropos_s, 0.5)
    return write_run(folder, cell(repeat), phases=(n4, atropos)).name


def test_phases_of_all_folders_in_one_table(tmp_path, caplog):
    keys = [_record(tmp_path / "cpu", 0), _record(tmp_path / "gpu", 1)]
    write_run(tmp_path / "cpu", cell(2), name=".partial-cc")
    (tmp_path / "cpu" / "dd").mkdir()
    (tmp_path / "cpu" / "dd" / "run.json").write_text("[1]")
    table = phase_table([tmp_path / "cpu", tmp_path / "gpu", tmp_path / "missing"])
    assert table["cell_key"].tolist() == sorted(keys * 2)
    assert table["phase"].tolist() == ["n4", "atropos"] * 2
    assert table["duration_s"].tolist() == [3.0, 1.0] * 2
    assert table["peak_rss_bytes"].isna().all()
    assert "dd" in caplog.text


def test_summary_gives_each_phase_its_share(tmp_path):
    _record(tmp_path, 0)
    _record(tmp_path, 1, n4_s=1.0, atropos_s=3.0)
    summary = phase_summary(phase_table([tmp_path]))
    assert summary["phase"].tolist() == ["n4", "atropos"]
    assert summary["runs"].tolist() == [2, 2]
    assert summary["share"].tolist() == pytest.approx([0.5, 0.5])
    assert summary["duration_s"].tolist() == [2.0, 2.0]


def test_no_runs_give_empty_tables_with_all_columns(tmp_path):
    table = phase_table([tmp_path])
    assert table.dtypes.astype(str).to_dict() == PHASE_DTYPES
    table.to_parquet(tmp_path / "phases.parquet")
    assert list(pd.read_parquet(tmp_path / "phases.parquet").columns) == list(PHASE_DTYPES)
    assert len(phase_summary(table)) == 0
