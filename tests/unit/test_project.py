"""The project folder: named, by the environment, or the nearest one above."""

from pathlib import Path

import pytest

from voxcast import project
from voxcast.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(project.ENVIRONMENT_VARIABLE, raising=False)
    folder = tmp_path / "project"
    (folder / "data" / "runs").mkdir(parents=True)
    (folder / project.PROJECT_FILE).touch()
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_nearest_folder_above_is_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.find(None) is None
    with pytest.raises(ConfigError, match="no project here or above"):
        project.require(None)
    monkeypatch.chdir(folder / "data" / "runs")
    assert project.require(None) == folder


def test_a_named_folder_comes_before_the_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(project.ENVIRONMENT_VARIABLE, str(folder))
    assert project.find(None) == folder
    other = tmp_path / "other"
    with pytest.raises(ConfigError, match=r"other: not a project: it has no params\.yaml"):
        project.find(other)
    other.mkdir()
    (other / project.PROJECT_FILE).touch()
    assert project.find(other) == other
