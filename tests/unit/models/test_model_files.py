"""Model files: arrays and back, and one line for every file that was cut short or changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import planted
from voxcast.errors import ModelError, one_line
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, Forecaster, calibrate
from voxcast.models.model_files import read_arrays, read_sealed, write_arrays, write_sealed
from voxcast.models.point_model import queries_of
from voxcast.models.selection.cross_validation import Validation

MEMBERS = ("extra_trees", "boosted", "cnn")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a blend with a network, and a trend."""
    table = planted.table(6)
    volumes = planted.volumes(table)
    members = {
        name: point_model.fit(table, volumes, name, FAMILIES[name].defaults, "volume", 0)
        for name in MEMBERS
    }
    blend = point_model.blend("voting", members, dict.fromkeys(MEMBERS, (1 / 3,) * 3))
    params = FAMILIES["ridge"].defaults
    ridge = point_model.fit(table, None, "ridge", params, "volume", 0)
    out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", params, "volume")
    calibrated = calibrate(ridge, table, out_of_fold, 1.5)
    forecaster = Forecaster({"volume": CalibratedModel(blend, calibrated.calibrators, ridge)})
    folder = tmp_path_factory.mktemp("model")
    forecaster.save(folder)
    queries = queries_of(table, volumes)
    predictions = zip(
        forecaster.predict(queries), Forecaster.load(folder).predict(queries), strict=True
    )
    for before, after in predictions:
        assert after.quantiles["cpu_s"] == pytest.approx(before.quantiles["cpu_s"], rel=1e-12)
    return folder


def variants(content: bytes) -> list[bytes]:
    """Return a file cut short, with one byte changed, emptied, and replaced."""
    rng = np.random.default_rng(len(content))
    lengths = [0, 1, len(content) // 2, len(content) - 2]
    damaged = [content[:length] for length in lengths] + [b"null", b"[" * 100_000, b"\xff" * 40]
    for position in rng.integers(0, len(content), 5):
        changed = bytearray(content)
        changed[position] ^= 1 << int(rng.integers(0, 8))
        damaged.append(bytes(changed))
    return damaged


def test_the_model_has_files_of_all_kinds(model: Path) -> None:
    names = {path.name for path in model.rglob("*") if path.is_file()}
    assert names == {
        "forecaster.json", "point_model.json", "encoder.json", "regressor.json",
        "regressor.npz", "trunk.json", "trunk.npz",
    }  # fmt: skip


def test_a_file_that_is_damaged_is_named_in_one_line(model: Path) -> None:
    before = read_contents(model)
    for path, content in before.items():
        for damaged in variants(content):
            path.write_bytes(damaged)
            try:
                Forecaster.load(model)
            except ModelError as error:
                message = one_line(error)
                assert len(message) < 500
                assert str(path) in message or "another release" in message
            else:  # white space, or 1E-05 for 1e-05, is no damage
                assert path.suffix == ".json"
                assert json.loads(damaged) == json.loads(content)
        path.unlink()
        with pytest.raises(ModelError, match=r"no such file|contains no model"):
            Forecaster.load(model)
        path.write_bytes(content)
    assert read_contents(model) == before
    Forecaster.load(model)


def read_contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_equal_arrays_are_equal_bytes(tmp_path: Path) -> None:
    arrays = {"0": np.arange(5), "1": np.eye(3)[:, ::2], "2": np.float64(0.1) * np.ones(0)}
    first, second = (write_arrays(tmp_path / name, arrays) for name in ("a.npz", "b.npz"))
    assert first == second
    again = read_arrays(tmp_path / "a.npz", first)
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def test_a_seal_holds_for_numbers_and_nested_content(tmp_path: Path) -> None:
    content = {"b": [0.1, 1e-300, -0.0, 12345678901234567], "a": {"é": None, "x": (1, 2)}}
    write_sealed(tmp_path / "a.json", content)
    assert read_sealed(tmp_path / "a.json") == {**content, "a": {"é": None, "x": [1, 2]}}
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text.replace("0.1", "0.2"))
    with pytest.raises(ModelError, match=r"a\.json: the file is damaged"):
        read_sealed(tmp_path / "a.json")
