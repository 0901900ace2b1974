"""What a registered model states and keeps: its card, its version, its code and hashes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import mlflow
import pandas as pd
import pytest

from champions import HEADER_ROW, PROMOTION
from registries import logged_model
from voxcast.errors import ModelError
from voxcast.files import sha256_folder
from voxcast.serving.bundle import INDEX, Bundle, Origin
from voxcast.serving.model_card import model_card
from voxcast.serving.predictor import NOTE, noted_version
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.registry import PREDICTOR

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
    assert card.count("not recorded") == 18
    assert "image sets: not recorded; measured: not recorded" in card
    assert json.dumps(EVIDENCE)[:20] not in card


def test_mlflow_notes_the_version_of_a_model_loaded_by_its_name(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = tmp_path / "model"
    shutil.copytree(logged_model(project), copy)
    (copy / NOTE).unlink(missing_ok=True)  # of another test
    unnamed = mlflow.pyfunc.load_model(str(copy)).predict(pd.DataFrame([HEADER_ROW]))
    assert unnamed["model_version"].tolist() == [""]
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow.set_tracking_uri(tracking_uri(project))  # another test may have named another one
    named = mlflow.pyfunc.load_model("models:/voxcast@champion").predict(
        pd.DataFrame([HEADER_ROW])
    )
    assert named["model_version"].tolist() == ["1"]
    (copy / NOTE).write_text("model_name: voxcast\nmodel_version: '7'\n")
    noted = mlflow.pyfunc.load_model(str(copy)).predict(pd.DataFrame([HEADER_ROW]))
    assert noted["model_version"].tolist() == ["7"]


@pytest.mark.parametrize(
    "content", [b"", b"[1, 2", b"- 3\n", b"model_name: voxcast\n", b"\xff\xfe"]
)
def test_a_damaged_note_is_no_version(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NOTE).write_bytes(content)
    assert noted_version(tmp_path) == ""
    assert noted_version(tmp_path / "gone") == ""


def test_a_registered_predictor_imports_modules_that_never_move() -> None:
    modules = re.findall(r"^from (voxcast[\w.]*)", PREDICTOR.read_text(), re.MULTILINE)
    assert modules == [
        "voxcast.errors", "voxcast.serving.bundle", "voxcast.serving.machines",
        "voxcast.serving.prediction_service", "voxcast.serving.rows",
    ]  # fmt: skip


def test_content_cannot_move_between_files_under_one_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    recorded = sha256_folder(tmp_path)
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_bytes(b"1b\x002")
    assert sha256_folder(tmp_path) != recorded


def test_the_index_is_compared_as_it_is_read(bundle: Bundle) -> None:
    sha256 = hashlib.sha256((bundle.folder / INDEX).read_bytes()).hexdigest()
    assert Bundle.load(bundle.folder, sha256).apps == bundle.apps
    with pytest.raises(ModelError, match="is not the file that was registered"):
        Bundle.load(bundle.folder, "0" * 64)
