"""Tables of the studies, and their page from complete and partial results."""

import subprocess
import sys
from pathlib import Path

import pytest

from voxcast.errors import TableError
from voxcast.files import write_json
from voxcast.report.study_tables import NONE, STUDIES, read_studies, rows_of, studies_page

PROJECT = Path(__file__).parents[3]
SPLITS = {
    "ants_segment": {
        "subject": {"voxcast": {"errors": {"runtime_s": {
            "mape": 5.04, "mape_interval": [-1.0, 6.2]}}}},
        "host": {"not_measurable": "measured on one machine"},
    }
}  # fmt: skip


def test_rows_and_columns_are_taken_from_where_they_are() -> None:
    [study, _] = STUDIES["splits"]
    [subject, host] = rows_of(SPLITS, study.rows, study.columns)
    assert subject[:3] == ["ants_segment: subject", "5.0 % (0 to 6.2 %)", NONE]
    assert host[-1] == "measured on one machine"
    assert rows_of({"a": {"other": {}}}, study.rows, study.columns) == []


def test_every_published_study_has_its_tables() -> None:
    results = read_studies(PROJECT / "published" / "studies")
    assert set(results) == set(STUDIES)
    for name, studies in STUDIES.items():
        for study in studies:
            rows = rows_of(results[name], study.rows, study.columns)
            assert rows, study.title
            columns = list(zip(*rows, strict=True))
            assert all(set(column) != {NONE} for column in columns), study.title


def test_the_page_shows_available_results_and_lists_missing_ones(tmp_path: Path) -> None:
    script = PROJECT / "pipelines" / "studies_page.py"
    page = tmp_path / "results" / "report" / "studies.html"
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True)
    text = page.read_text(encoding="utf-8")
    assert "<table" not in text
    assert f"Not available yet: {', '.join(STUDIES)}" in text
    write_json(tmp_path / "results" / "studies" / "splits.json", SPLITS)
    text = studies_page(read_studies(tmp_path / "results" / "studies"))
    assert "5.0\N{NO-BREAK SPACE}% (0\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}6.2" in text
    assert "Not available yet: ablation, " in text


def test_a_broken_result_is_reported(tmp_path: Path) -> None:
    (tmp_path / "splits.json").write_text("{")
    with pytest.raises(TableError, match=r"splits\.json: cannot be read"):
        read_studies(tmp_path)
