"""Studies in the report: numbers where there are some, words where there are none."""

from voxcast.report.studies import NAMES, tables

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
HELD = {"covered": 59, "subjects": 60, "interval": [0.911, 0.9996],
        "by_quartile": [{"runs": 15, "covered": n} for n in (15, 15, 15, 14)]}  # fmt: skip
SHARP = {"asked_over_used": 1.14, "one_request_asked_over_used": 3.9}
TARGETS = ("cpu_s", "runtime_s", "peak_rss_bytes")


def test_what_was_studied_is_shown_and_nothing_else() -> None:
    assert tables({}) == []
    questions, requests = tables({"splits": SPLITS})
    assert questions.rows[0][:2] == ["ants_segment: unseen subject", "5.0 % (0 to 6.2 %)"]
    assert questions.rows[1][-1] == "measured on one machine"
    assert requests.rows[1][:4] == ["ants_segment: HARP, MAE", "58 %", "40 %", "1.02×"]
    assert requests.rows[1][4] == "17 % (UPP 55 %, its 60 % bound)"
    assert all(len(row) == len(questions.head) for row in questions.rows)


def test_every_study_has_its_table() -> None:
    way = {"cpu_s": ERROR, "peak_rss_bytes": ERROR}
    batch = {
        "a": {
            "errors": dict.fromkeys(TARGETS, ERROR), "coverage": dict.fromkeys(TARGETS, HELD),
            "sharpness": dict.fromkeys(TARGETS, SHARP), "chosen": "ridge",
        }
    }  # fmt: skip
    found = {
        "splits": SPLITS,
        "ablation": {"a": {"constant": way, "header": way}, "b": {"constant": way}},
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
    asked = {"normalised_cost": 1.2, "normalised_cost_interval": [1.1, 1.3]}
    ways = dict.fromkeys(("laboratory", "harp_doubling", "population", "per_image"), asked)
    costs = {"ways": ways, "over_implied": 1.02, "excess_left": 0.25}
    found["per_image"] = {"a": {"sd_log": 0.5, "reserved": costs, "turnaround": costs}}
    assert set(found) == set(NAMES)
    made = tables(found)
    assert len(made) == 8
    assert all(len(row) == len(table.head) for table in made for row in table.rows)
    held = next(table for table in made if "second batch" in table.caption)
    assert held.rows[0][2:4] == ["59 of 60 (91 to 100 %)", "15 · 15 · 15 · 14"]
