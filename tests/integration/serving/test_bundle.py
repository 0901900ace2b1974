"""A bundle: one forecaster an application, read when needed and checked against its hash."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from champions import bundle_of_apps
from voxcast.errors import ModelError
from voxcast.files import sha256_folder
from voxcast.serving.bundle import INDEX, Bundle, write_bundle
from voxcast.tracking.registry import FOLDER


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundle_of_apps(tmp_path_factory.mktemp("pair"), 8, "segment", "tile")


@pytest.fixture
def copied(pair: Bundle, tmp_path: Path) -> Path:
    return shutil.copytree(pair.folder, tmp_path / FOLDER)


def test_a_part_is_carried_over_byte_for_byte(pair: Bundle, tmp_path: Path) -> None:
    alone = write_bundle(tmp_path / FOLDER, [pair.part("tile")])
    assert alone.apps == {"tile": pair.apps["tile"]}
    assert alone.app_named(None).name == "tile"
    assert alone.trained_on("tile") == pair.trained_on("tile")
    assert alone.trained_on("tile").subjects
    carried, original = (b.forecaster_folder("tile") for b in (alone, pair))
    assert sha256_folder(carried) == sha256_folder(original)


def test_a_changed_forecaster_is_refused_and_the_other_still_predicts(copied: Path) -> None:
    with (copied / "forecasters/tile/forecaster.json").open("a") as file:
        file.write(" ")
    bundle = Bundle.load(copied)
    assert bundle.forecaster("segment").family == "ridge"
    with pytest.raises(ModelError, match="is not the model that was registered; `voxcast models"):
        bundle.forecaster("tile")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 0, "apps": {}}', "another release"),
        ('{"format": 1, "apps": {}}', "no application"),
        ("[" * 100_000, "is damaged: RecursionError"),
        ('{"format": 1, "apps": {"' + "a" * 300 + '": {}}}', "is damaged: 'a{40}' is no name"),
    ],
)
def test_a_damaged_index_is_one_error(copied: Path, content: str, message: str) -> None:
    (copied / INDEX).write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        Bundle.load(copied)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


def test_a_bundle_without_declared_characteristics_declares_all(
    pair: Bundle, copied: Path
) -> None:
    index = json.loads((copied / INDEX).read_text())
    del index["apps"]["tile"]["characteristics"]
    index["apps"]["segment"]["characteristics"] = ["foreground_voxels"]
    (copied / INDEX).write_text(json.dumps(index))
    bundle = Bundle.load(copied)
    assert bundle.apps["tile"] == pair.apps["tile"]
    assert bundle.apps["segment"].characteristics == ("foreground_voxels",)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda f: shutil.rmtree(f / "forecasters/tile"), "is not the model that was registered"),
        (lambda f: (f / "trained_on/tile.json").write_text("{"), "is not the file that was"),
        (lambda f: (f / "trained_on/tile.json").unlink(), "is damaged: FileNotFoundError"),
    ],
)
def test_a_damaged_application_is_named_and_never_carried_over(
    copied: Path, tmp_path: Path, damage: Callable[[Path], object], problem: str
) -> None:
    damage(copied)
    bundle = Bundle.load(copied)
    ((name, found),) = bundle.problems().items()
    assert name == "application tile"
    assert found.startswith(problem)
    with pytest.raises(ModelError, match=problem):
        write_bundle(tmp_path / "next", [bundle.part("segment"), bundle.part("tile")])


def test_a_hidden_file_is_no_damage_and_another_is(copied: Path) -> None:
    (copied / "forecasters/tile/.DS_Store").write_text("left by a file manager")
    assert not Bundle.load(copied).problems()
    (copied / "forecasters/tile/more.json").write_text("{}")
    assert "application tile" in Bundle.load(copied).problems()
