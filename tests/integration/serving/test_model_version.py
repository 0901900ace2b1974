"""An answer tells the version of the model and when it was calibrated, however it is loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlflow
import pandas as pd
import pytest

from champions import HEADER_ROW, PROMOTION
from registries import logged_model
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.predictor import NOTE, noted_version
from voxcast.tracking.address import tracking_uri


def test_the_version_is_that_of_the_registry(project: Path) -> None:
    (answer,) = PredictionService.of_project(project).predict([HEADER_ROW], 0.95)
    assert (answer["model_version"], answer["calibrated_at"]) == ("1", PROMOTION.promoted_at)


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
