"""A project whose champion was learned from recorded runs, as a reader has it."""

import runpy
import shutil
from pathlib import Path

import pytest

from commands import ROOT, call, clone
from voxcast import config

OVERRIDES = (
    "campaign=recorded", "images.subjects=3", "images.fixed_grids=[]",
    "images.axis_voxels=[48,96]", "images.voxels=[200000,250000,300000]", "app=[ants_segment]",
    "tune.families=[median,voxels,ridge]", "tune.trials=1", "tune.folds=2",
)  # fmt: skip
# The stages that predictions need. Nothing is measured: the runs are those on record.
STAGES = ("images", "catalogue", "profile_runs cpu", "profile_runs gpu", "featurize", "tune",
          "train", "register")  # fmt: skip


@pytest.fixture(scope="session")
def documented_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tracked project with images and a champion, as after ``make demo``."""
    folder = clone(tmp_path_factory.mktemp("documented") / "project")
    # Stages that are not run here, such as evaluate, left the published results.
    shutil.copytree(folder / "published", folder / "results", dirs_exist_ok=True)
    config.compose(folder / "params.yaml", list(OVERRIDES), folder / "conf")
    for words in map(str.split, STAGES):
        stage = runpy.run_path(str(ROOT / f"pipelines/{words[0]}.py"))["main"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", words)
            call(stage, project=folder)
    # The pages name an image of the demo's cohort, and a folder of a user's own heads.
    for subject in ("0001", "0003"):
        recorded = folder / f"data/images/sub-r{subject}/anat/sub-r{subject}_T1w.nii.gz"
        copied = folder / f"data/images/sub-{subject}/anat/sub-{subject}_T1w.nii.gz"
        copied.parent.mkdir(parents=True)
        shutil.copy2(recorded, copied)
        (folder / "heads").mkdir(exist_ok=True)
        shutil.copy2(recorded, folder / "heads" / f"sub-{subject}_T1w.nii.gz")
    return folder
