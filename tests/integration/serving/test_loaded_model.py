"""`voxcast.load`: champion, number and folder; images and rows; errors in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import voxcast
from champions import HEADER_ROW
from voxcast.api.model import Model
from voxcast.errors import ModelError
from voxcast.records import Configuration


@pytest.fixture(scope="module")
def model(project: Path) -> Model:
    model = voxcast.load(project=project)
    assert isinstance(model, Model)
    return model


def test_a_model_is_loaded_by_number_and_folder(
    project: Path, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = model.predict(HEADER_ROW)
    assert expected["model_version"].tolist() == [model.version] == ["1"]
    monkeypatch.chdir(tmp_path)
    folder = project / "models/v1"
    for loaded in (
        voxcast.load("1", project=project),
        voxcast.load(folder),
        voxcast.load(str(folder)),
    ):
        answers = loaded.predict(HEADER_ROW)
        pd.testing.assert_frame_equal(
            answers.drop(columns="model_version"), expected.drop(columns="model_version")
        )
    monkeypatch.setenv("VOXCAST_PROJECT", str(project))
    assert voxcast.load().version == "1"


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("7", ModelError, "version 7: no such version; the model has 1"),
        ("models:/voxcast/1", ModelError, "no such model; give the number"),
        ("nowhere", ModelError, "no such model; give the number"),
    ],
)
def test_what_is_no_model_is_named(
    project: Path, address: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        voxcast.load(address, project=project)


def test_rows_have_their_index_and_may_be_asked_in_other_configurations(model: Model) -> None:
    rows = pd.DataFrame([HEADER_ROW, {**HEADER_ROW, "cpus": 2.0}], index=["a", "b"])
    table = model.predict(rows, app="segment")
    assert table.index.tolist() == ["a", "b"]
    assert table["cpus"].tolist() == [1.0, 2.0]
    chosen = [Configuration("cpu", n) for n in (2, 1)]
    crossed = model.predict(rows, configurations=chosen)
    assert crossed.index.tolist() == ["a", "a", "b", "b"]
    assert crossed["cpus"].tolist() == [2.0, 1.0, 2.0, 1.0]
    assert crossed["cpu_s_upper"].iloc[1] == table["cpu_s_upper"].iloc[0]


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([HEADER_ROW, "head.nii.gz"], "is neither images nor rows; give paths of images"),
        ([3], "is neither images nor rows"),
        (3, "is neither images nor rows"),
        ([{**HEADER_ROW, "cpus": 0.5}], "row 0: cpus: must be a whole number, not 0.5"),
        ([HEADER_ROW, {**HEADER_ROW, "cpus": "two"}], r"row 1: cpus: must be a number, not 'two'"),
        ([{**HEADER_ROW, "cpus": [1, 2]}], r"row 0: cpus: must be a number, not \[1, 2\]"),
        ([{"app": "segment"}], "row 0: dtype, file_size_bytes, .*: are missing"),
    ],
)
def test_what_cannot_be_predicted_is_refused(model: Model, requests: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model.predict(requests)


def test_loading_and_predicting_rows_needs_no_mlflow(project: Path) -> None:
    script = (
        f"import sys, voxcast; m = voxcast.load(project={str(project)!r})\n"
        f"m.predict({HEADER_ROW!r})\n"
        "assert 'mlflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
