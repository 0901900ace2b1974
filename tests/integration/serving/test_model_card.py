"""The card of a version: what is on record, and nothing else."""

import json
from dataclasses import replace

from champions import PROMOTION
from voxcast.serving.bundle import Bundle, Origin
from voxcast.serving.model_card import model_card

INTERVAL = {"value": 4.321, "low": 3.7, "high": 5.0, "subjects": 20}
EVIDENCE = {
    "cross_validation": {"cpu_s/median_ape": 3.9},
    "errors_percent": {"cpu_s": INTERVAL, "runtime_s": INTERVAL | {"low": None, "high": None}},
    "noise_floor_percent": {"cpu_s": {"value": 2.0, "low": 1.5, "high": 3.0, "runs": 12}},
    "risk_at_upper_quantile": {"cpu_s": {"exceeded": 1, "subjects": 20, "interval": [0, 0.249]}},
    "comparison": {
        "challenger": INTERVAL, "champion": INTERVAL | {"value": None},
        "gain": {"value": 0.1, "low": None, "high": None, "subjects": 1},
    },
    "training": {"image_sets": {"heads": 30, "": 10}, "first_run_at": "2026-01-01T08:00:00",
                 "last_run_at": "2026-02-03T08:00:00"},
    "software": ["voxcast==1"],
}  # fmt: skip


def with_evidence(bundle: Bundle, evidence: dict) -> Bundle:
    served = bundle.apps["segment"]
    promotion = replace(PROMOTION, evidence=evidence, noisy_runs=10)
    return replace(bundle, apps={"segment": replace(served, promotion=promotion)})


def test_a_card_states_what_is_on_record(bundle: Bundle) -> None:
    bundle = replace(bundle, version="7", origin=Origin("segment", "6"))
    card = model_card(with_evidence(bundle, EVIDENCE))
    for line in (
        "# voxcast, version 7",
        "- made for: `segment`",
        "- replaced version: 6",
        "- commit of the project: not recorded",
        "- learned from: 40 runs of 20 subjects, 25 % measured beside other work; image sets: "
        "heads (30 runs), without a name (10 runs); measured: 2026-01-01 to 2026-02-03",
        "- software: voxcast==1",
        "- compared with the champion before it: mean log error over 1 held-out subject: "
        "challenger 4.3210 (3.7000 to 5.0000), champion not recorded, gain 0.1000, no interval",
        "| CPU time | 4.3 % (3.7 to 5) | 3.9 % | 2 % (1.5 to 3) | 1 of 20 (0.0 to 24.9 %) |",
        "| wall time | 4.3 %, no interval | not recorded | not recorded | not recorded |",
        "- CPUs: 1 to 2 CPUs",
    ):
        assert line in card.splitlines(), line


def test_what_is_not_on_record_is_said_and_not_invented(bundle: Bundle) -> None:
    card = model_card(with_evidence(bundle, {}))
    assert card.startswith("# voxcast\n")
    assert card.count("not recorded") == 17
    assert "image sets: not recorded; measured: not recorded" in card
    assert json.dumps(EVIDENCE)[:20] not in card
