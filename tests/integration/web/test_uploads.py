"""Images, as an upload or by their path, answered as `voxcast predict` answers."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from fastapi.testclient import TestClient

from small_head import write_head
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.web.application import application
from voxcast.web.server import Settings

REAL = os.environ.get("VOXCAST_REAL_T1")


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Heads of several types, orientations and sizes, compressed and not."""
    folder = tmp_path_factory.mktemp("heads")
    write_head(folder / "plain.nii")
    write_head(folder / "packed.nii.gz", spacing_mm=1.5, edge=80)
    image = nibabel.load(folder / "packed.nii.gz")
    voxels = np.asarray(image.dataobj)
    turned = nibabel.Nifti1Image(voxels.astype(np.int16).transpose(2, 0, 1), None)
    turned.set_sform(np.array([[0, -1.5, 0, 9], [0, 0, 1.6, 3], [-1.7, 0, 0, 2], [0, 0, 0, 1]]), 1)
    turned.header.set_slope_inter(2.0, -40.0)
    nibabel.save(turned, folder / "turned.nii.gz")
    nibabel.save(nibabel.Nifti2Image(voxels.astype(">f8"), image.affine), folder / "second.nii")
    real = sorted(Path(REAL).glob("*.nii.gz")) if REAL else []
    return [*sorted(folder.iterdir()), *real]


@pytest.fixture(scope="module")
def service(
    champion_project: Path, heads: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> TestClient:
    roots = (tmp_path_factory.mktemp("images"),)
    shutil.copy(heads[0], roots[0] / "scan.nii.gz")  # the first is compressed
    settings = Settings(ModelStore.of(champion_project), champion_project, roots=roots)
    with TestClient(application(settings)) as client:
        yield client


def described(service: TestClient, path: Path, app: str | None = "segment") -> dict[str, Any]:
    params = {} if app is None else {"app": app}
    answer = service.post("/images", params=params, content=path.read_bytes())
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


def test_an_image_is_answered_exactly_as_the_command_answers(
    service: TestClient, champion_project: Path, heads: list[Path]
) -> None:
    champion = PredictionService.of_project(champion_project).champion("segment")
    for path in heads:
        content, rows = described(service, path), champion.request_rows(path)
        predictions = champion.predict(rows, 0.95)
        assert content["predictions"] == predictions, path
        expected = {
            name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            for name, value in rows[0].items()
            if name not in ("app", "device", "cpus", "gpus")
        }
        assert content["row"] == expected, path
        assert [entry["name"] for entry in content["characteristics"]] == list(CHARACTERISTICS)
        assert content["image"]["bytes"] == path.stat().st_size
        question = {"rows": [content["row"]], "app": "segment", "configurations": "all"}
        assert service.post("/predict", json=question).json()["predictions"] == predictions


def test_a_path_on_an_allowed_folder_is_read(service: TestClient, heads: list[Path]) -> None:
    params = {"path": "scan.nii.gz", "app": "segment"}
    by_path = service.get("/images", params=params)
    assert by_path.status_code == 200, by_path.text
    assert by_path.json() == described(service, heads[0])
    refused = service.get("/images", params={**params, "path": "../scan.nii.gz"})
    assert refused.status_code == 404
    assert "no such image" in refused.json()["detail"]


def test_values_stand_beside_those_of_training(service: TestClient, heads: list[Path]) -> None:
    content = described(service, heads[0])
    values = {entry["name"]: entry for entry in content["characteristics"]}
    voxels = values["foreground_voxels"]
    assert 0 < voxels["low"] < voxels["usual"] < voxels["high"] < 1e8  # voxels, not logarithms
    assert voxels["within"] is (voxels["low"] / 1.25 <= voxels["value"] <= voxels["high"] * 1.25)
    assert values["noise_ratio"]["low"] is None
    assert values["noise_ratio"]["within"] is None
    views = {view["plane"]: view for view in content["slices"]}
    assert list(views) == ["sagittal", "coronal", "axial"]
    for view in views.values():
        assert base64.b64decode(view["png"]).startswith(b"\x89PNG")


def test_what_is_no_image_is_refused(service: TestClient, heads: list[Path]) -> None:
    assert service.post("/images", content=b"no image").status_code == 400
    assert service.post("/images", content=b"").status_code == 400
    form = service.post("/images", files={"file": heads[0].read_bytes()})
    assert form.status_code == 415
    assert "send the file itself; with curl: -X POST -T FILE" in form.json()["detail"]
    unnamed = service.post("/images", content=heads[0].read_bytes())
    assert unnamed.status_code == 400
    assert "several applications: register, segment; name one" in unnamed.json()["detail"]
