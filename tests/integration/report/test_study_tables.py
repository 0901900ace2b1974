"""Tables of the studies, and their page from complete and partial results."""

import subprocess
import sys
from pathlib import Path

import pytest

from voxcast.errors import TableError
from voxcast.files import write_json
from voxcast.report.study_tables import MAKERS, read_studies, studies_page, study_tables

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
            },
        },
        "host": {"not_measurable": "measured on one machine"},
    }
}  # fmt: skip
COVERAGE = {"covered": 59, "subjects": 60, "rate": 0.98, "interval": [0.911, 0.9996],
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
    assert all(len(row) == len(errors.head) for row in errors.rows)


def test_every_study_has_its_table() -> None:
    by_target = {"cpu_s": ERROR, "peak_rss_bytes": ERROR}
    compared = {"against": "all", "difference": {"points": 1.5, "interval": [-0.2, 3.0],
                "ratio": 1.3}}  # fmt: skip
    batch = {
        "a": {
            "errors": dict.fromkeys(TARGETS, ERROR), "coverage": dict.fromkeys(TARGETS, COVERAGE),
            "sharpness": dict.fromkeys(TARGETS, SHARP), "chosen": "ridge",
            "answers": {"runs": 60, "out_of_range": 4, "calibrated": 50},
        }
    }  # fmt: skip
    results = {
        "splits": SPLITS,
        "ablation": {
            "a": {"all": by_target, "header": {"cpu_s": ERROR | compared,
                  "peak_rss_bytes": ERROR | compared}}, "b": {"all": by_target},
        },
        "second_batch": batch,
        "real": batch,
        "heads": batch,
        "transfer": {"a -> b": [{"runs": n, "cost_s": 3.0, "cold": 40.0, "transferred": 9.0,
                                 "pooled": 8.0} for n in (2, 4)]},
    }  # fmt: skip
    replayed = {"normalised_cost": 1.2, "normalised_cost_interval": [1.1, 1.3]}
    ways = dict.fromkeys(("laboratory", "harp_doubling", "population", "per_image"), replayed)
    costs = {"ways": ways, "over_implied": 1.02, "excess_left": 0.25}
    results["per_image"] = {"a": {"sd_log": 0.5, "reserved": costs, "turnaround": costs}}
    assert set(results) == set(MAKERS)
    tables = study_tables(results)
    assert len(tables) == 9
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    batches = next(table for table in tables if "second batch" in table.caption)
    assert batches.rows[0][3:5] == ["59 of 60 (91 to 100 %)", "15 · 15 · 15 · 14"]
    assert batches.rows[0][-1] == "4 · 50 of 60"
    by_caption = {table.caption.split(":")[0].split(" by ")[0]: table for table in tables}
    (difference,) = by_caption["What leaving information out costs"].rows
    assert difference == ["a: header, against all", "+1.5 (-0.2 to +3.0)", "1.30×"]


def test_the_page_shows_available_results_and_lists_missing_ones(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "pipelines" / "studies_page.py"
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
