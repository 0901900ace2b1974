"""``voxcast models``: a listing and refusals without MLflow, in any folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import champions
from champions import register_champion
from small_head import write_head

ROOT = Path(__file__).parents[3]
SCRIPT = (
    "import sys; from voxcast.cli import main\n"
    "code = main(sys.argv[1:])\n"
    "print(sorted({'mlflow', 'pandas', 'torch', 'sklearn'} & set(sys.modules)), file=sys.stderr)\n"
    "sys.exit(code)"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a champion, in a folder whose name has all that addresses give a meaning."""
    folder = tmp_path_factory.mktemp("parent") / "what ä#&"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_PROJECT"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        register_champion(folder, 8)
    shutil.copy(ROOT / "params.yaml", folder)
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=40)
    return folder


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a verb; the last line of stderr names the heavy modules that it imported."""
    names = ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_errors_over_one_subject_are_not_listed_as_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    once = replace(champions.PROMOTION, subjects=1, calibrated=False, cv_objective=0.0)
    monkeypatch.setattr(champions, "PROMOTION", once)
    register_champion(tmp_path, 1)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    write_head(tmp_path / "head.nii.gz", spacing_mm=2.5, edge=40)
    listed = run("models", cwd=tmp_path)
    assert "1 subject, not calibrated, log error not known (1 subject)," in listed.stdout
    predicted = run("predict", "head.nii.gz", "--header-only", "--json", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    (image,) = json.loads(predicted.stdout)
    for row in image["predictions"]:
        assert (row["measured_subjects"], row["missing_subjects"]) == (1, 18)
        assert row["runtime_s_upper"] >= 2 * row["runtime_s_median"] * (1 - 1e-9)


def test_versions_are_listed_without_mlflow(project: Path) -> None:
    listed = run("models", cwd=project)
    assert listed.returncode == 0, listed.stderr
    assert listed.stderr == "[]\n"
    assert listed.stdout.startswith("version   1 champion\n  segment: ridge, 20 subjects")
    (row,) = json.loads(run("models", "--json", cwd=project).stdout)
    assert (row["version"], row["champion"], row["promoted"]) == ("1", True, "segment")
    assert row["apps"]["segment"]["family"] == "ridge"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rollback", "99"), "version 99: no such version; the model has 1"),
        (("rollback", "1", "--app", "unheard"), "unheard: unknown application; the model has s"),
        (("rollback", "--app", "unheard"), "unheard: unknown application; the model has segment"),
        (("rollback", "1"), "version 1: is the champion already"),
        (("rollback",), "version 1: replaced no other; `voxcast models` lists the versions"),
        (("compare", "1", "99"), "version 99: no such version; the model has 1"),
        (("compare", "1", "1", "--app", "unheard"), "unheard: unknown application; the model has"),
    ],
)
def test_refusals_come_before_mlflow(
    project: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = run("models", *arguments, cwd=project)
    assert refused.returncode == 2
    line, imported = refused.stderr.splitlines()
    assert message in line
    assert imported == "[]"


def test_without_a_champion_there_is_nothing_to_return_to(project: Path, tmp_path: Path) -> None:
    shutil.copy(project / "params.yaml", tmp_path)
    assert run("models", cwd=tmp_path).stdout.startswith("no version yet; train a model")
    for arguments in (("models", "rollback"), ("models", "show"), ("predict", "head.nii.gz")):
        assert "models: has no champion yet; train" in run(*arguments, cwd=tmp_path).stderr


def test_a_folder_that_mlflow_takes_for_another_is_refused_at_first(tmp_path: Path) -> None:
    folder = tmp_path / "50%25"
    assert "rename the folder" in run("init", str(folder), cwd=tmp_path).stderr
    assert not folder.exists()
    folder.mkdir()
    shutil.copy(ROOT / "params.yaml", folder)
    refused = run("learn", "--app", "x", ".", cwd=folder)
    assert refused.returncode == 2
    assert "rename the folder" in refused.stderr
