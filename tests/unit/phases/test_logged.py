import json

import pandas as pd
import pytest

from voxcast.history.run_table import PHASE_DTYPES
from voxcast.phases.logged import phase_summary, phase_table


def _record(folder, key, cpus=1, phases=(("n4", 1.0, 4.0), ("atropos", 4.0, 5.0))):
    (folder / key).mkdir(parents=True)
    names = ("name", "start_s", "end_s")
    logged = [{**dict(zip(names, phase, strict=True)), "cpu_s": 0.5} for phase in phases]
    cell = {"app": "app", "volume_id": "v", "configuration": {"cpus": cpus}}
    record = {"cell": cell, "profile": {"phases": logged}}
    (folder / key / "run.json").write_text(json.dumps(record))


def test_phases_of_all_folders_in_one_table(tmp_path, caplog):
    _record(tmp_path / "cpu", "bb")
    _record(tmp_path / "gpu", "aa", cpus=2)
    _record(tmp_path / "cpu", ".partial-cc")
    (tmp_path / "cpu" / "dd").mkdir()
    (tmp_path / "cpu" / "dd" / "run.json").write_text("[1]")
    table = phase_table([tmp_path / "cpu", tmp_path / "gpu", tmp_path / "missing"])
    assert table["cell_key"].tolist() == ["aa", "aa", "bb", "bb"]
    assert table["phase"].tolist() == ["n4", "atropos"] * 2
    assert table["duration_s"].tolist() == [3.0, 1.0] * 2
    assert table["peak_rss_bytes"].isna().all()
    assert "dd" in caplog.text


def test_summary_gives_each_phase_its_share(tmp_path):
    _record(tmp_path, "aa")
    _record(tmp_path, "bb", phases=(("n4", 1.0, 2.0), ("atropos", 2.0, 5.0)))
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
