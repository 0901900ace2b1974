"""The reference model of the package, learned from the recorded campaigns; five minutes.

``python studies/reference_model.py`` works in a copy of the tracked files, and replaces
``src/voxcast/reference``. The network is left out, so that answers need numpy only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from voxcast.files import read_json, write_json

PROJECT = Path(__file__).resolve().parents[1]
REFERENCE = PROJECT / "src/voxcast/reference"
APPS = ("ants_segment", "ants_register", "tile_segment")
FAMILIES = (
    "median", "voxels", "law", "ridge", "extra_trees", "boosted", "mlp", "gaussian_process",
    "phases",
)  # fmt: skip
# Six present volumes suffice: the runs are those on record, with their images' characteristics.
CHANGES = (
    "campaign=recorded", "images.subjects=6", "images.fixed_grids=[]",
    f"app=[{','.join(APPS)}]", f"tune.families=[{','.join(FAMILIES)}]",
)  # fmt: skip
STAGES = (
    "images", "catalogue", "profile_runs cpu", "profile_runs gpu", "phases", "featurize", "tune",
    "train", "evaluate", "explain", "register",
)  # fmt: skip


def learn(folder: Path) -> None:
    """Run the stages of the graph that a champion needs, in a copy of the project."""
    tracked = subprocess.run(
        [str(shutil.which("git")), "ls-files", "-z"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, tracked.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, target)
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "VOXCAST_"))
    }
    environment["PYTHONPATH"] = str(folder / "src")
    compose = (
        "import sys; from pathlib import Path; from voxcast import config; "
        "config.compose(Path('params.yaml'), sys.argv[1:], Path('conf'))"
    )
    commands = [["-c", compose, *CHANGES]]
    for stage in STAGES:
        name, *device = stage.split()
        commands.append([f"pipelines/{name}.py", *device])
    for command in commands:
        subprocess.run([sys.executable, *command], cwd=folder, env=environment, check=True)


def main() -> None:
    """Replace the model in the package."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        learn(folder)
        pointer = read_json(folder / "models/champion.json")
        number = pointer["champion"]
        shutil.rmtree(REFERENCE, ignore_errors=True)
        shutil.copytree(folder / f"models/v{number}", REFERENCE / f"v{number}")
        pointer["versions"] = {number: pointer["versions"][number]}
        write_json(REFERENCE / "champion.json", pointer)


if __name__ == "__main__":
    main()
