"""`voxcast.load` computes characteristics of a laboratory by the project that the user names."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

import voxcast
from champions import bundle_of_apps
from small_head import write_head
from voxcast.cli import main
from voxcast.serving.bundle import write_bundle
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.registry import FOLDER

ROOT = Path(__file__).parents[3]
MODULE = "lab_of_this_test"
CODE = """
def bright_ml(volume):
    ml = volume.header.spacing_mm[0] ** 3 / 1000
    return float((volume.intensity > 0.9).mean()) * volume.grid_voxels * ml
"""
ASKED = ["cpu_s_median", "runtime_s_upper", "peak_rss_bytes_upper"]


def lab_bundle(work: Path) -> Path:
    """Write a bundle whose application declares ``bright_ml`` beside a known characteristic."""
    part = bundle_of_apps(work / "planted", 20, "segment").part("segment")
    served = replace(part.served, characteristics=("foreground_voxels", "bright_ml"))
    return write_bundle(work / FOLDER, [replace(part, served=served)]).folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that declares the characteristic, with a champion; elsewhere is the user."""
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)
    with ModelStore.of(folder).new_folder() as work:
        ModelStore.of(folder).add("1", lab_bundle(Path(work)))
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["features"]["characteristics"] = {
        "bright_ml": {
            "function": f"{MODULE}:bright_ml", "unit": "ml", "cost": "strided grid",
            "source": "definition", "version": 1,
        }
    }  # fmt: skip
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / f"{MODULE}.py").write_text(CODE)
    write_head(tmp_path / "head.nii.gz", spacing_mm=2.5, edge=80)
    monkeypatch.chdir(elsewhere)
    yield folder
    sys.modules.pop(MODULE, None)


def test_a_named_project_computes_what_its_command_line_does(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = project.parent / "head.nii.gz"
    # As a user names it, relative to a folder that is left before the image is asked about.
    model = voxcast.load(project=os.path.relpath(project))
    os.chdir("/")
    answers = model.predict(head)
    assert answers["input_level"].tolist() == ["volume", "volume"]
    assert answers["missing_characteristics"].tolist() == ["", ""]
    assert main(["predict", str(head), "--project", str(project), "--json"]) == 0
    (of_verb,) = json.loads(capsys.readouterr().out)
    expected = pd.DataFrame(of_verb["predictions"])
    pd.testing.assert_frame_equal(answers[ASKED], expected[ASKED])


def test_no_code_is_run_that_the_user_did_not_name(project: Path) -> None:
    head = project.parent / "head.nii.gz"
    planted_code = project.parent / "copy"
    shutil.copytree(project / "models/v1", planted_code)
    for name in (f"{MODULE}.py", "params.yaml"):
        shutil.copy(project / name, planted_code)
    model = voxcast.load(planted_code)
    assert model.predict(head)["input_level"].tolist() == ["header", "header"]
    os.chdir(project)  # where the user happens to be
    answers = voxcast.load().predict(head)
    assert answers["missing_characteristics"].tolist() == ["bright_ml", "bright_ml"]
    assert MODULE not in sys.modules
