"""Attacks planted in a registered model: each is refused, and nothing that was planted runs.

A payload writes a marker. The first tests show that each payload does, where it is loaded as its
author meant.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest

import voxcast
from champions import HEADER_ROW, trust
from registries import logged_model
from voxcast.cli import main
from voxcast.errors import ModelError, RequestError
from voxcast.files import read_json, sha256_file, sha256_folder, write_json
from voxcast.models.model_files import SEAL, write_sealed
from voxcast.serving.bundle import INDEX, plain_files
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.tracking.address import address_of
from voxcast.tracking.registry import pull

ROW = HEADER_ROW | {"app": "segment"}
FORECASTER = "forecasters/segment"
MEMBER = {"params": {}, "weights": [1.0, 1.0, 1.0]}
REGRESSOR = f"{FORECASTER}/volume/ridge"


class Payload:
    """An object that writes a marker when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (self.marker,)


def pickled(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker))


def code(marker: Path) -> str:
    return f"\nimport os\nos.makedirs({str(marker)!r}, exist_ok=True)\n"


def write_pickle(path: Path, marker: Path) -> None:
    path.write_bytes(pickled(marker))


def write_object_array(path: Path, marker: Path) -> None:
    """Write an archive of arrays, of which one is of objects."""
    array = np.empty(1, dtype=object)
    array[0] = Payload(marker)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=True, **{"0": array})


def write_npz_bomb(path: Path, marker: Path) -> None:
    """Write an archive that is small, and large once it is read."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.npy", bytes(50_000_000))


FILES: dict[str, Callable[[Path, Path], None]] = {
    "pickle": write_pickle, "objects": write_object_array, "bomb": write_npz_bomb,
}  # fmt: skip


@pytest.fixture
def copied(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a project with a champion."""
    folder = shutil.copytree(project, tmp_path / "project")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "executed"


def version_folder(project: Path) -> Path:
    return ModelStore.of(project).open().folder


def ask(project: Path) -> dict[str, Any]:
    (row,) = PredictionService.of_project(project).predict([ROW], 0.95)
    return row


def seal_again(bundle: Path) -> None:
    """Recompute every hash in a bundle, as who plants a file in it can."""
    path = bundle / REGRESSOR / "regressor.json"
    content = read_json(path)
    content.pop(SEAL)
    write_sealed(path, content | {"arrays_sha256": sha256_file(path.with_name("regressor.npz"))})
    index = read_json(bundle / INDEX)
    index["apps"]["segment"]["forecaster_sha256"] = sha256_folder(bundle / FORECASTER)
    write_json(bundle / INDEX, index)


def verify(project: Path) -> tuple[int, str]:
    """Return the exit code and the output of `voxcast models show`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(["models", "show", "--project", str(project)])
    return status, out.getvalue()


def test_a_payload_is_executed_where_it_is_unpickled(tmp_path: Path, marker: Path) -> None:
    pickle.loads(pickled(marker))  # noqa: S301
    assert marker.is_dir()
    marker.rmdir()
    write_object_array(tmp_path / "planted", marker)
    np.load(tmp_path / "planted", allow_pickle=True)["0"]
    assert marker.is_dir()


def test_every_file_is_refused_when_a_byte_of_it_changed(copied: Path) -> None:
    folder = version_folder(copied)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) > 8
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        if path.parent.name == "trained_on":
            assert "application segment" in ModelStore.of(copied).open().problems()
        else:
            with pytest.raises((ModelError, RequestError), match="was registered") as caught:
                ask(copied)
            assert len(str(caught.value).splitlines()) == 1
        assert verify(copied)[0] == 2
        path.write_bytes(content)
    assert verify(copied)[0] == 0


def rename_application(bundle: Path, marker: Path) -> None:
    content = read_json(bundle / INDEX)
    content["apps"]["../../planted"] = content["apps"]["segment"]
    write_json(bundle / INDEX, content)


def replace_and_seal(bundle: Path, marker: Path) -> None:
    write_pickle(bundle / REGRESSOR / "regressor.npz", marker)
    seal_again(bundle)


@pytest.mark.parametrize("change", [rename_application, replace_and_seal])
def test_a_changed_index_is_refused_before_it_is_read(
    copied: Path, marker: Path, change: Callable[[Path, Path], None]
) -> None:
    change(version_folder(copied), marker)
    for use in (PredictionService.of_project, lambda project: voxcast.load(project=project)):
        with pytest.raises(ModelError, match=r"bundle\.json: is not the file that was registered"):
            use(copied)
    assert not marker.exists()


def test_what_was_changed_is_listed(copied: Path, marker: Path) -> None:
    bundle = version_folder(copied)
    write_pickle(bundle / "planted.pkl", marker)
    write_pickle(bundle / REGRESSOR / "planted.pkl", marker)
    (bundle / "trained_on/planted.json").write_text("{}")
    status, text = verify(copied)
    assert status == 2
    assert text.splitlines()[-3:] == [
        "application segment: is not the model that was registered",
        "planted.pkl: was not registered",
        "trained_on/planted.json: was not registered",
    ]
    assert not marker.exists()


def test_the_command_line_refuses_a_changed_model(
    copied: Path, marker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_and_seal(version_folder(copied), marker)
    assert main(["predict", "head.nii.gz", "--project", str(copied)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "bundle.json: is not the file that was registered; `voxcast models rollback`" in line
    assert not marker.exists()


def test_code_in_the_copy_of_mlflow_is_not_run(copied: Path, marker: Path) -> None:
    """MLflow would run it; predictions and `pull` read the bundle alone."""
    model, expected = logged_model(copied), ask(copied)
    with (model / "predictor.py").open("a") as file:
        file.write(code(marker))
    write_pickle(model / "python_model.pkl", marker)
    assert ask(copied) == expected
    store = ModelStore(copied / "pulled")
    assert pull(store, address_of(copied / "mlflow.db")) == "1"
    assert not list(store.folder.rglob("*.p*"))
    assert not marker.exists()
    mlflow.pyfunc.load_model(str(model))
    assert marker.is_dir()


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind_instead_of_arrays_is_refused(
    copied: Path, marker: Path, kind: str
) -> None:
    """Even where every hash was made anew."""
    bundle = version_folder(copied)
    FILES[kind](bundle / REGRESSOR / "regressor.npz", marker)
    seal_again(bundle)
    trust(copied)
    with pytest.raises(RequestError, match="contains no arrays"):
        ask(copied)
    assert not marker.exists()


def test_a_file_beside_a_model_is_refused(copied: Path, marker: Path) -> None:
    write_pickle(version_folder(copied) / REGRESSOR / "planted.pkl", marker)
    with pytest.raises(RequestError, match="is not the model that was registered"):
        ask(copied)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("file", "key", "name"),
    [
        (f"{FORECASTER}/volume/point_model.json", "members", [MEMBER | {"family": "../planted"}]),
        (f"{FORECASTER}/volume/point_model.json", "members", [MEMBER | {"family": "os.system"}]),
        (f"{FORECASTER}/volume/point_model.json", "members", [7]),
        (f"{FORECASTER}/volume/point_model.json", "range", {"numbers": "os.system"}),
        (f"{FORECASTER}/forecaster.json", "models", {"../../..": {}}),
        (f"{REGRESSOR}/regressor.json", "formulas", [{"kind": "os.system", "args": "true"}]),
        (f"{REGRESSOR}/encoder.json", "__class__", "os.system"),
    ],
)
def test_a_name_in_a_sealed_file_is_a_name_and_no_path_or_code(
    copied: Path, file: str, key: str, name: Any
) -> None:
    bundle = version_folder(copied)
    content = read_json(bundle / file)
    content.pop(SEAL)
    write_sealed(bundle / file, content | {key: name})
    seal_again(bundle)
    trust(copied)
    with pytest.raises(RequestError) as caught:
        ask(copied)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["bundle.json", "forecasters", f"{REGRESSOR}/encoder.json"])
def test_a_link_out_of_the_model_is_refused(copied: Path, tmp_path: Path, name: str) -> None:
    """A copy of the same content elsewhere has the right hash, and could change at any time."""
    path = version_folder(copied) / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=f"{name}: is a link, to "):
        PredictionService.of_project(copied)


def test_a_pipe_is_refused_and_not_waited_for(copied: Path) -> None:
    path = version_folder(copied) / "trained_on/segment.json"
    path.unlink()
    os.mkfifo(path)
    trust(copied)
    with pytest.raises(ModelError, match="is no plain file"):
        PredictionService.of_project(copied)


def test_a_folder_that_is_not_there_is_refused_and_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        plain_files(tmp_path / "gone")
