"""Tables of the studies, and their page from complete and partial results."""

import subprocess
import sys
from pathlib import Path

import pytest

from voxcast.errors import TableError
from voxcast.files import write_json
from voxcast.report.studies import read_studies, studies_page
from voxcast.report.study_tables import MAKERS, study_tables

ERROR = {"mape": 5.04, "mape_interval": [-1.0, 6.2]}
SPLITS = {
    "ants_segment": {
        "subject": {
            "voxcast": {
                "errors": {"runtime_s": ERROR},
                "request": {"upp": 4.0, "ov_mape": 15.0, "asked_over_used": 1.14},
            },
            "harp_MAE": {
                "errors": {"runtime_s": {"mape": 30.0, "mape_interval": None}},
                "request": {"upp": 58.0, "ov_mape": 40.0, "asked_over_used": 1.02},
                "voxcast_at_no_more_risk": {"level": 0.6, "upp": 55.0, "ov_mape": 17.0},
            },
        },
        "host": {"not_measurable": "measured on one machine"},
    }
}  # fmt: skip
COVERAGE = {"covered": 59, "subjects": 60, "interval": [0.911, 0.9996],
        "by_quartile": [{"runs": 15, "covered": n} for n in (15, 15, 15, 14)]}  # fmt: skip
SHARP = {"asked_over_used": 1.14, "one_request_asked_over_used": 3.9}
TARGETS = ("cpu_s", "runtime_s", "peak_rss_bytes")


def test_only_studies_with_a_result_are_shown() -> None:
    assert study_tables({}) == []
    errors, requests = study_tables({"splits": SPLITS})
    assert errors.rows[0][:2] == ["ants_segment: unseen subject", "5.0 % (0 to 6.2 %)"]
    assert len(errors.rows) == 1
    text = " ".join(errors.notes)
    assert text.endswith("unseen host, measured on one machine (ants_segment).")
    for term in ("HARP", "WTM", "MAE"):
        assert term in text
    assert "UPP is" in requests.notes[0]
    assert "OV_MAPE is" in requests.notes[0]
    assert requests.rows[1][:4] == ["ants_segment: HARP, MAE", "58 %", "40 %", "1.02×"]
    assert requests.rows[1][4] == "17 % (UPP 55 %, 60 % bound)"
    assert all(len(row) == len(errors.head) for row in errors.rows)


def test_every_study_has_its_table() -> None:
    by_target = {"cpu_s": ERROR, "peak_rss_bytes": ERROR}
    batch = {
        "a": {
            "errors": dict.fromkeys(TARGETS, ERROR), "coverage": dict.fromkeys(TARGETS, COVERAGE),
            "sharpness": dict.fromkeys(TARGETS, SHARP), "chosen": "ridge",
        }
    }  # fmt: skip
    results = {
        "splits": SPLITS,
        "ablation": {
            "a": {"constant": by_target, "header": by_target}, "b": {"constant": by_target},
        },
        "second_batch": batch,
        "real": batch,
        "scales": {
            "a": {w: {"cost_share": c, "cpu_s": ERROR} for w, c in
                  (("all", 1.0), ("mixed", 0.1), ("full_only", 0.1), ("chosen", 0.1))},
            "b": {"not_measurable": "no scaled-down runs"},
        },
        "transfer": {"a -> b": [{"runs": n, "cost_s": 3.0, "cold": 40.0, "transferred": 9.0,
                                 "pooled": 8.0} for n in (2, 4)]},
    }  # fmt: skip
    replayed = {"normalised_cost": 1.2, "normalised_cost_interval": [1.1, 1.3]}
    ways = dict.fromkeys(("laboratory", "harp_doubling", "population", "per_image"), replayed)
    costs = {"ways": ways, "over_implied": 1.02, "excess_left": 0.25}
    results["per_image"] = {"a": {"sd_log": 0.5, "reserved": costs, "turnaround": costs}}
    assert set(results) == set(MAKERS)
    tables = study_tables(results)
    assert len(tables) == 8
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    batches = next(table for table in tables if "second batch" in table.caption)
    assert batches.rows[0][2:4] == ["59 of 60 (91 to 100 %)", "15 · 15 · 15 · 14"]


def test_the_page_shows_available_results_and_lists_missing_ones(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "pipelines" / "studies_page.py"
    page = tmp_path / "results" / "report" / "studies.html"
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True)
    text = page.read_text(encoding="utf-8")
    assert "<table" not in text
    assert f"Not available yet: {', '.join(MAKERS)}" in text
    write_json(tmp_path / "results" / "studies" / "splits.json", SPLITS)
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True)
    text = page.read_text(encoding="utf-8")
    assert text.count("<table") == 2
    assert "Not available yet: ablation, " in text
    assert text == studies_page(read_studies(tmp_path / "results" / "studies"))


def test_a_broken_result_is_reported(tmp_path: Path) -> None:
    (tmp_path / "splits.json").write_text("{")
    with pytest.raises(TableError, match=r"splits\.json: cannot be read"):
        read_studies(tmp_path)
