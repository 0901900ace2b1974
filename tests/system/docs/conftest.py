"""A project whose champion was learned from recorded runs, as a reader has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from page_blocks import PROJECT, shell_environment

# The stages that predictions need. Nothing is measured: the runs are those on record.
PREPARE = """
import runpy, sys
from pathlib import Path
from voxcast import config
overrides = [
    "campaign=recorded", "images.subjects=6", "images.fixed_grids=[]", "app=[ants_segment]",
    "tune.families=[median,voxels,ridge]", "tune.trials=1", "tune.folds=2",
]
config.compose(Path("params.yaml"), overrides, Path("conf"))
for stage in ("images", "catalogue", "profile_runs cpu", "profile_runs gpu", "featurize", "tune",
              "train", "register"):
    sys.argv = stage.split()
    try:
        runpy.run_path(f"pipelines/{sys.argv[0]}.py", run_name="__main__")
    except SystemExit as ended:
        assert not ended.code, stage
"""


@pytest.fixture(scope="session")
def documented_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tracked project with images and a champion, as after ``make demo``."""
    folder = tmp_path_factory.mktemp("documented") / "project"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=PROJECT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, listed):
        source, target = PROJECT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    # Stages that are not run here, such as evaluate, left the published results.
    shutil.copytree(folder / "published", folder / "results", dirs_exist_ok=True)
    # DVC asks git which state of the project it is in.
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "copy"],
        [sys.executable, "-c", PREPARE],
    ):
        ended = subprocess.run(
            command, cwd=folder, env=shell_environment(), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command[:4]}\n{ended.stdout}\n{ended.stderr}"
    # The pages name an image of the demo's cohort, and a folder of a user's own heads.
    for subject in ("0001", "0003"):
        recorded = folder / f"data/images/sub-r{subject}/anat/sub-r{subject}_T1w.nii.gz"
        copied = folder / f"data/images/sub-{subject}/anat/sub-{subject}_T1w.nii.gz"
        copied.parent.mkdir(parents=True)
        shutil.copy2(recorded, copied)
        (folder / "heads").mkdir(exist_ok=True)
        shutil.copy2(recorded, folder / "heads" / f"sub-{subject}_T1w.nii.gz")
    return folder
