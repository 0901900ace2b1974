import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from voxcast import config
from voxcast.cli import main
from voxcast.config import project_files
from voxcast.config.project_files import PACKAGE_FILE, create_project, refresh_project

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "a project"
    create_project(folder)
    return folder


def test_a_new_project_is_valid_and_agrees_with_its_configuration(project, monkeypatch):
    monkeypatch.chdir(project)
    assert config.load("params.yaml").apps
    assert not config.drifts()
    assert not list(project.glob(".partial-*"))


def test_stages_depend_on_the_installed_package_in_place_of_its_source(project):
    stages = yaml.safe_load((project / "dvc.yaml").read_text())["stages"]
    assert stages.keys() == yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"].keys()
    for name, stage in stages.items():
        assert not [dep for dep in stage["deps"] if dep.startswith("src/")], name
        assert stage["deps"].count(PACKAGE_FILE) == 1, name
        assert (project / stage["cmd"].split()[1]).is_file()


@pytest.mark.parametrize("git", [False, True])
def test_dvc_works_in_it_with_and_without_git(tmp_path, git):
    folder = tmp_path / "below" / "project"
    if git:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    create_project(folder)
    listed = subprocess.run(
        [sys.executable, "-m", "dvc", "stage", "list", "--name-only"],
        cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "DVC_NO_ANALYTICS": "true"},
    ).stdout.split()  # fmt: skip
    assert {"images", "profile@cpu", "register", "report"} <= set(listed)
    assert ("no_scm" in (folder / ".dvc/config").read_text()) is not git


def test_nothing_is_overwritten_and_nothing_is_left_of_a_refused_project(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text("mine")
    assert main(["init"]) == 2
    assert "conf/config.yaml: exists, and is not overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["conf", "config.yaml"]
    assert (tmp_path / "conf/config.yaml").read_text() == "mine"


def test_what_was_moved_is_taken_back_if_a_file_cannot_be(tmp_path):
    (tmp_path / "pipelines").write_text("a file where a folder is needed")
    with pytest.raises(OSError, match="pipelines"):
        create_project(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "pipelines"]


def test_a_new_release_makes_the_stages_stale_and_keeps_what_the_user_edited(project, monkeypatch):
    assert refresh_project(project) == []
    before = (project / PACKAGE_FILE).read_bytes()
    edited = project / "conf/app/_base.yaml"
    edited.write_text(edited.read_text() + "# mine\n")
    contents = project_files.project_files()
    changed = {
        name: contents[name] + b"# released\n"
        for name in ("conf/app/_base.yaml", "pipelines/tune.py")
    }
    monkeypatch.setattr(project_files, "project_files", lambda: contents | changed)
    assert refresh_project(project) == ["conf/app/_base.yaml"]
    assert (project / "pipelines/tune.py").read_bytes() == changed["pipelines/tune.py"]
    assert "# mine" in edited.read_text()
    assert (project / PACKAGE_FILE).read_bytes() != before
    assert refresh_project(project) == []
