"""What stays on record of images under DVC, as image sets and commits change."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from commands import ROOT, run
from training_project import write_volume
from voxcast.images.catalogue import ON_RECORD, read_on_record

STAGES = ("pipelines/images.py", "pipelines/catalogue.py", "src/voxcast/images",
          "src/voxcast_apps/heads")  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The first two stages of the graph under git and DVC."""
    folder = tmp_path / "project"
    for name in STAGES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(source, folder / name)
    for name in (".gitignore", "data/sources.tsv"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    graph = (ROOT / "dvc.yaml").read_text()
    (folder / "dvc.yaml").write_text(graph[: graph.index("\n  profile:")] + "\n")
    run(folder, "git", "init", "-q")
    run(folder, "dvc", "init", "-q")
    return folder


def subjects(project: Path) -> list[str]:
    return sorted(read_on_record(project / "data/catalogue" / ON_RECORD).subject)


def repro(project: Path, images: Path) -> list[str]:
    """Bring the graph up to date with images of a user; return the subjects on record."""
    params = (ROOT / "params.yaml").read_text().replace("kind: cohort", "kind: bids")
    (project / "params.yaml").write_text(params.replace("path: null", f"path: {images}"))
    run(project, "dvc", "repro")
    return subjects(project)


def test_dvc_keeps_the_record_over_repro_and_checkout(project: Path, tmp_path: Path) -> None:
    for name, seeds in (("first", (1, 2)), ("second", (3,))):
        for seed in seeds:
            write_volume(tmp_path / name / f"head{seed}.nii.gz", seed)
    assert repro(project, tmp_path / "first") == ["head1", "head2"]
    run(project, "git", "add", "-A")
    run(project, "git", "commit", "-qm", "images")
    assert repro(project, tmp_path / "second") == ["head1", "head2", "head3"]
    # Back to a state that DVC has in its cache: what it computed then must not be restored.
    assert repro(project, tmp_path / "first") == ["head1", "head2", "head3"]
    current = pd.read_parquet(project / "data/catalogue/catalogue.parquet")
    assert list(current.subject) == ["head1", "head2"]
    # The state of an earlier commit.
    run(project, "git", "checkout", "-q", "-f", "HEAD")
    run(project, "dvc", "checkout", "--force")
    assert subjects(project) == ["head1", "head2"]
