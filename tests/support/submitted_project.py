"""A project whose only runs are jobs that were really submitted to this machine, or to Slurm.

Its application burns CPU time in proportion to the size of its image, times a factor in a file.
"""

import json
import shutil
import subprocess
from pathlib import Path

import nibabel
import numpy as np
import yaml

from commands import attempt
from planted_tasks import MB, plan_of, shell_app

ROOT = Path(__file__).parents[2]
APP = "burner"
# Some 0.3 to 1.5 s of CPU time, memory in proportion to the image, and a little output.
BURN = (
    'exec perl -e \'my ($image, $out, $factor) = @ARGV; my $n = -s $image; my $held = "x" x (1000 '
    "* $n); my $x = 0; $x += sqrt($_) for 1 .. int(280 * $factor * $n); open my $o, '>', "
    '"$out/sum" or die; print $o $x, length $held\' "$1" "$2" "$(cat -- FACTOR)"'
).replace("'>'", '">"')


def voxcast(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return attempt(*arguments, cwd=folder)


class SubmittedProject:
    """A project folder; subjects are numbered on with each submission."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.subjects = folder, 0
        factor = folder / "factor"
        factor.write_text("1")
        self.app = shell_app(BURN.replace("FACTOR", str(factor)), APP)
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        described = {
            **params["app"]["ants_segment"], "module": None, "argv": list(self.app.argv),
            "version": "1", "parameters": {}, "ranges": {}, "scaled_down": {}, "packages": [],
            "files": [], "programs": [], "phases": [], "phase_drivers": {}, "phase_patterns": {},
            "characteristics": ["foreground_voxels"], "container": {}, "binds": {},
        }  # fmt: skip
        params["app"] = {APP: described}
        params["features"] |= {"history": [], "network_points": 8}
        params["evaluation"]["test_fraction"] = 0.0001
        params["tune"] |= {"families": ["ridge"], "trials": 2, "folds": 4}
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        shutil.copytree(ROOT / "conf", folder / "conf")
        (folder / "conf" / "app" / f"{APP}.yaml").write_text(yaml.safe_dump({APP: described}))

    def images(self, count: int) -> list[Path]:
        """Write heads of new subjects, of different sizes."""
        paths = []
        for number in range(self.subjects, self.subjects + count):
            rng = np.random.default_rng(number)
            shape = rng.integers(16, 30, 3)
            distance = np.sqrt(sum(g**2 for g in np.meshgrid(
                *(np.linspace(-1, 1, n) for n in shape), indexing="ij")))  # fmt: skip
            voxels = np.where(distance < rng.uniform(0.6, 0.9), 700, 20) + rng.normal(0, 15, shape)
            path = self.folder / "in" / f"sub-{number:04d}_T1w.nii"
            path.parent.mkdir(exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(voxels.astype(np.int16), np.diag([4, 4, 4, 1])), path)
            paths.append(path)
        self.subjects += count
        return paths

    def submit(self, count: int, factor: float = 1.0, *, by_hand: bool = False) -> dict:
        """Submit jobs on new subjects, as predicted or by hand; return what is printed.

        The application takes ``factor`` times as long from now on.
        """
        (self.folder / "factor").write_text(str(factor))
        images = self.images(count)
        arguments: list[object] = [*images, "--app", APP, "--cluster", "local", "--cpus", 1]
        if by_hand:
            plan = plan_of(self.app, images, memories_bytes=(400 * MB,), prediction=None)
            path = self.folder / f"plan-{self.subjects}.json"
            path.write_text(json.dumps(plan.to_record()))
            arguments = [path]
        out = self.folder / "results" / f"until-{self.subjects}"
        completed = voxcast(
            self.folder, "submit", *arguments, "--out", out, "--cluster", "local", "--json"
        )
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout) | {"out": str(out), "messages": completed.stderr}
