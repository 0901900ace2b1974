"""Phases side by side, of runs that went through the same."""

import numpy as np
import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.errors import TableError
from voxcast.phases.logged import phase_matrix, phase_summary, phase_table, used_byte_s
from voxcast.records import MEASURED, Phase
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


def phases(key: str, *row: tuple[str, float, float, float | None]) -> pd.DataFrame:
    rows = [
        {"cell_key": key, "phase": name, "start_s": start, "end_s": end,
         "duration_s": end - start, "peak_rss_bytes": peak}
        for name, start, end, peak in row
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"peak_rss_bytes": "Int64"})


USUAL = (("load", 0.0, 1.0, 10.0), ("epoch", 1.0, 3.0, 20.0), ("epoch", 3.0, 6.0, 30.0))


NO_TRACES = pd.DataFrame({"cell_key": [], "t_s": [], "rss_bytes": []})


def runs_of(keys: str, outcomes: dict[str, str] | None = None) -> pd.DataFrame:
    outcome_by_key = dict.fromkeys(keys, "completed") | (outcomes or {})
    return pd.DataFrame(
        {
            "cell_key": list(outcome_by_key),
            "outcome": outcome_by_key.values(),
            "labels_json": "",
            "source": MEASURED,
        }
    )


def test_repeated_phases_are_one_and_other_runs_are_counted_by_cause() -> None:
    unread = (USUAL[0], ("epoch", 1.0, 2.0, None))
    table = pd.concat(
        [phases("a", *USUAL), phases("b", *USUAL), phases("c", USUAL[0]), phases("d", *unread),
         phases("e", *unread), phases("f", *USUAL)]
    )  # fmt: skip
    runs = runs_of("abcdeg", {"f": "timeout"})
    trace = pd.DataFrame({"cell_key": list("aaabbbee"), "t_s": [0, 3, 9, 0, 3, 9, 50, 51],
                          "rss_bytes": [4, 4, 4, 0, 6, 6, 9, 9]})  # fmt: skip
    used = phase_matrix(runs, table, trace)
    assert used.phases == ("load", "epoch")
    assert used.cell_keys == ("a", "b")
    assert used.duration_s.tolist() == [[1, 5], [1, 5]]
    assert used.peak_bytes.tolist() == [[10, 30], [10, 30]]
    assert used.left_out == {
        "of outcome timeout": 1,
        "without phases": 1,
        "without a trace": 1,
        "without a memory reading near a phase": 1,
        "with other phases": 1,
    }
    assert used_byte_s(runs, trace, used) == pytest.approx(np.array([24.0, 30.0]))
    only = trace[trace["cell_key"] == "a"]
    assert used_byte_s(runs, only, used) is None
    means = {"b": '{"mean_rss_bytes": 2}'}
    labelled = runs.assign(labels_json=[means.get(key, "") for key in runs["cell_key"]])
    assert used_byte_s(labelled, only, used) == pytest.approx(np.array([24.0, 12.0]))


def test_a_short_phase_has_the_readings_at_its_ends() -> None:
    table = phases("a", ("load", 0.0, 1.0, 100.0), ("write", 1.4, 1.6, None))
    trace = pd.DataFrame({"cell_key": "a", "t_s": [0.0, 1.0, 2.0], "rss_bytes": [100, 300, 200]})
    matrix = phase_matrix(runs_of("a"), table, trace)
    assert matrix.peak_bytes.tolist() == [[100, 260]]  # what the source states is kept
    assert matrix.read_at_ends == {"write": 1}
    stated = table.assign(peak_rss_bytes=[100, 260])
    assert phase_matrix(runs_of("a"), stated, trace).read_at_ends == {"write": 1}
    of_source = runs_of("a").assign(source="slant")
    assert phase_matrix(of_source, stated, trace).read_at_ends == {}
    assert phase_matrix(of_source, table, trace).read_at_ends == {"write": 1}


def test_phases_without_peaks_are_refused() -> None:
    with pytest.raises(TableError, match="no run with peak memory of all its phases"):
        phase_matrix(runs_of("a"), phases("a", ("load", 0.0, 1.0, None)), NO_TRACES)
