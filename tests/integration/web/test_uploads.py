"""Questions with an image: as an upload or by its path, answered as `voxcast predict` answers."""

from __future__ import annotations

import base64
import gzip
import os
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
from fastapi.testclient import TestClient

import nifti_bytes
from small_head import write_head
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.settings import Settings

REAL = os.environ.get("VOXCAST_REAL_T1")
FORM = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
MULTIPART = "multipart/form-data; boundary=b"


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


def test_an_upload_is_answered_exactly_as_the_command_answers(
    service: TestClient, champion_project: Path, heads: list[Path]
) -> None:
    champion = PredictionService.of_project(champion_project).champion("segment")
    for path in heads:
        answer = service.post(
            "/predict", files={"file": ("name", path.read_bytes())}, data={"app": "segment"}
        )
        assert answer.status_code == 200, (path, answer.text)
        expected = champion.predict(champion.request_rows(path), 0.95)
        assert answer.json()["predictions"] == expected, path


def test_characteristics_are_those_of_the_command_and_their_row_answers_again(
    service: TestClient, champion_project: Path, heads: list[Path]
) -> None:
    champion = PredictionService.of_project(champion_project).champion("segment")
    for path in heads:
        with path.open("rb") as file:
            answer = service.post(
                "/characteristics", files={"file": file}, data={"app": "segment"}
            )
        assert answer.status_code == 200, (path, answer.text)
        content = answer.json()
        (expected, *_) = champion.request_rows(path)
        seen = {
            name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            for name, value in expected.items()
            if name not in ("app", "device", "cpus", "gpus")
        }
        assert content["row"] == seen, path
        assert [entry["name"] for entry in content["characteristics"]] == list(CHARACTERISTICS)
        assert content["image"]["bytes"] == path.stat().st_size
        again = service.post("/predict", json={"row": content["row"], "app": "segment"})
        assert again.json()["predictions"] == champion.predict(champion.request_rows(path), 0.95)


def test_a_path_on_an_allowed_folder_is_read(service: TestClient, heads: list[Path]) -> None:
    by_path = service.post("/predict", json={"path": "scan.nii.gz", "app": "segment"})
    assert by_path.status_code == 200, by_path.text
    with heads[0].open("rb") as file:
        by_upload = service.post("/predict", files={"file": file}, data={"app": "segment"})
    assert by_path.json() == by_upload.json()


def test_values_stand_beside_those_of_training(service: TestClient, heads: list[Path]) -> None:
    answer = service.post("/characteristics", json={"path": "scan.nii.gz", "app": "segment"})
    values = {entry["name"]: entry for entry in answer.json()["characteristics"]}
    voxels = values["foreground_voxels"]
    assert 0 < voxels["low"] < voxels["usual"] < voxels["high"] < 1e8  # voxels, not logarithms
    assert voxels["within"] is (voxels["low"] / 1.25 <= voxels["value"] <= voxels["high"] * 1.25)
    assert values["noise_ratio"]["low"] is None
    assert values["noise_ratio"]["within"] is None


def test_views_are_pictures(service: TestClient) -> None:
    answer = service.post("/characteristics", json={"path": "scan.nii.gz", "app": "segment"})
    views = {view["plane"]: view for view in answer.json()["slices"]}
    assert list(views) == ["sagittal", "coronal", "axial"]
    for view in views.values():
        assert base64.b64decode(view["png"]).startswith(b"\x89PNG")


def part(name: bytes, value: bytes, more: bytes = b"") -> bytes:
    return FORM % (name, more, value)


def test_hostile_forms_are_refused(service: TestClient, tmp_path: Path) -> None:
    head = nifti_bytes.head(tmp_path)
    file = part(b"file", head, b'; filename="x"')
    forms: dict[str, tuple[bytes, set[int]]] = {
        "not ended": (file, {400, 422}),
        "empty": (b"", {400, 422}),
        "no file": (part(b"app", b"segment"), {422}),
        "a text in place of the file": (part(b"file", b"x"), {422}),
        "two files": (file + file, {400}),
        "another field": (file.replace(b"file", b"scan"), {422}),
        "an unknown field": (file + part(b"colour", b"x"), {422}),
        "a field twice": (file + 2 * part(b"app", b"segment"), {422}),
        "10,000 fields": (file + 10_000 * part(b"app", b"x"), {400}),
        "a long field": (part(b"app", b"x" * 2**20) + file, {400}),
        "a long header": (part(b"file", head, b'; filename="%b"' % (b"x" * 2**20)), {400}),
        "a row too": (file + part(b"row", b"{}"), {422}),
        "a path too": (file + part(b"path", b"scan.nii.gz"), {422}),
        "no JSON": (file + part(b"quantile", b"{"), {422}),
        "nested JSON": (file + part(b"parameters", b"[" * 100_000), {422}),
        "NaN": (file + part(b"quantile", b"NaN"), {422}),
        "a text for a number": (file + part(b"quantile", b'"x"'), {422}),
    }
    for name, (body, statuses) in forms.items():
        end = b"" if name == "not ended" else b"--b--\r\n"
        answer = service.post("/predict", content=body + end, headers={"Content-Type": MULTIPART})
        assert answer.status_code in statuses, (name, answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/problem+json", name


def test_hostile_bodies_are_refused(service: TestClient, tmp_path: Path) -> None:
    head = nifti_bytes.head(tmp_path)
    bodies: dict[str, tuple[bytes, str, int]] = {
        "no boundary": (head, "multipart/form-data", 400),
        "an endless boundary": (head, "multipart/form-data; boundary=" + "b" * 5000, 400),
        "no form": (head, "application/octet-stream", 415),
        "no JSON": (head, "application/json", 422),
        "no question": (b"{}", "application/json", 422),
        "deeply nested": (b'{"row":' * 900, "application/json", 422),
        "too many objects": (b'{"row":' * 100_000, "application/json", 413),
        "too large": (b'{"app":"' + b"x" * 2**24 + b'"}', "application/json", 413),
        "two images": (b'{"path":"x","row":{}}', "application/json", 422),
    }
    for name, (body, content_type, status) in bodies.items():
        answer = service.post("/predict", content=body, headers={"Content-Type": content_type})
        assert answer.status_code == status, (name, answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/problem+json", name


def test_the_fields_of_a_form_are_those_of_json(service: TestClient, tmp_path: Path) -> None:
    packed = gzip.compress(nifti_bytes.head(tmp_path))
    answer = service.post(
        "/predict", files={"file": packed},
        data={"app": "segment", "quantile": "0.9", "configurations": '[{"cpus": 2}]'},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    (row,) = answer.json()["predictions"]
    assert row["cpus"] == 2
    wide = service.post(
        "/predict", files={"file": packed},
        data={"app": "segment", "quantile": "0.97", "configurations": '[{"cpus": 2}]'},
    )  # fmt: skip
    assert wide.json()["predictions"][0]["runtime_s_upper"] > row["runtime_s_upper"]


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("/recommend", {"policy": "thrifty", "deadline": "2h", "cluster": "osc"}),
        ("/requests", {"strategy": "mean_doubling"}),
    ],
)
def test_other_questions_take_an_image_too(
    site_service: TestClient, site_project: Path, route: str, fields: dict[str, str]
) -> None:
    image = next(site_project.glob("*.nii*")).read_bytes()
    described = site_service.post("/characteristics", files={"file": image}).json()
    by_row = site_service.post(route, json={"row": described["row"], **fields})
    assert by_row.status_code == 200, by_row.text
    by_upload = site_service.post(route, files={"file": image}, data=fields)
    assert by_upload.json() == by_row.json()
