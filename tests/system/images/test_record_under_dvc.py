"""What stays on record of images under DVC, as image sets, experiments and commits change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pandas as pd

from training_project import write_volume
from versioned_project import ROOT, environment
from voxcast.images.catalogue import ON_RECORD, read_on_record


def image_set(folder: Path, *seeds: int) -> Path:
    for seed in seeds:
        write_volume(folder / f"head{seed}.nii.gz", seed)
    return folder


class Project:
    """The first two stages of the graph under git and DVC, with images of a user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("pipelines", "src"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "dvc.*")
            )
        for name in (".gitignore", "params.yaml", "data/sources.tsv"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        graph = (ROOT / "dvc.yaml").read_text()
        (folder / "dvc.yaml").write_text(graph[: graph.index("\n  profile:")] + "\n")
        # No pipelines/dvc.yaml here, and params.yaml is taken as it is.
        self.run("git", "init", "-q")
        self.run("dvc", "init", "-q")

    def run(self, *command: str) -> str:
        completed = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, f"{completed.stdout}\n{completed.stderr}"
        return completed.stdout + completed.stderr

    def choose(self, images: Path) -> None:
        lines = (ROOT / "params.yaml").read_text()
        lines = lines.replace("kind: cohort", "kind: bids").replace(
            "path: null", f"path: {images}"
        )
        (self.folder / "params.yaml").write_text(lines)

    def repro(self, images: Path) -> list[str]:
        self.choose(images)
        self.run("dvc", "repro")
        return self.subjects()

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)

    def subjects(self) -> list[str]:
        return sorted(read_on_record(self.folder / "data/catalogue" / ON_RECORD).subject)


def test_dvc_keeps_the_record_over_repro_experiments_and_checkout(tmp_path: Path) -> None:
    first = image_set(tmp_path / "first", 1, 2)
    second = image_set(tmp_path / "second", 3)
    third = image_set(tmp_path / "third", 4)
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project")
    assert project.repro(first) == ["head1", "head2"]
    project.commit("first")
    assert project.repro(second) == ["head1", "head2", "head3"]
    assert "up to date" in project.run("dvc", "repro")
    # Back to a state that DVC has in its cache: what it computed then must not be restored.
    assert project.repro(first) == ["head1", "head2", "head3"]
    current = pd.read_parquet(project.folder / "data/catalogue/catalogue.parquet")
    assert list(current.subject) == ["head1", "head2"]
    project.commit("all")

    # An experiment elsewhere adds to a copy and leaves this project as it is.
    path = f"images.path={third}"
    project.run("dvc", "exp", "run", "--temp", "--no-hydra", "-n", "third", "-S", path)
    assert project.subjects() == ["head1", "head2", "head3"]
    project.run("dvc", "exp", "apply", "third")
    assert project.subjects() == ["head1", "head2", "head3", "head4"]

    # The state of an earlier commit.
    project.run("git", "checkout", "-q", "-f", "HEAD~1")
    project.run("dvc", "checkout", "--force")
    assert project.subjects() == ["head1", "head2"]
