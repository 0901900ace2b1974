"""``voxcast inspect`` on real files: results on stdout, talk on stderr."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from commands import attempt as run

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def head(tmp_path: Path) -> Path:
    grid = np.indices((30, 40, 36)) - np.array([15, 20, 18])[:, None, None, None]
    ball = 700 * (np.sqrt((grid**2).sum(axis=0)) < 12) + np.random.default_rng(0).normal(
        20, 5, (30, 40, 36)
    )
    image = nibabel.Nifti1Image(ball.astype(np.int16), np.diag([2.0, 2.0, 2.5, 1.0]))
    image.set_sform(image.affine, code=1)
    path = tmp_path / "head.nii.gz"
    nibabel.save(image, path)
    return path


def test_inspect_prints_header_and_characteristics(head: Path) -> None:
    images = json.loads(run("inspect", str(head), "--json", cwd=head.parent).stdout)
    assert images[0]["shape_j"] == 40
    assert images[0]["spacing_k_mm"] == 2.5
    ball = 4 / 3 * np.pi * 12**3
    assert images[0]["foreground_voxels"] == pytest.approx(ball, rel=0.15)
    blind = json.loads(
        run("inspect", str(head), "--json", "--header-only", cwd=head.parent).stdout
    )
    assert "foreground_voxels" not in blind[0]
    assert "shape_i" in run("inspect", str(head), cwd=head.parent).stdout


def test_inspect_shows_the_readable_images_and_names_the_others(head: Path) -> None:
    damaged = head.with_name("damaged.nii.gz")
    damaged.write_bytes(head.read_bytes()[:200])
    result = run("inspect", str(damaged), str(head), "--json", cwd=head.parent)
    assert result.returncode == 2
    assert [row["path"] for row in json.loads(result.stdout)] == [str(head)]
    assert result.stderr.startswith("voxcast: ")
    assert "damaged.nii.gz" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_refresh_detects_a_changed_user_file(head: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    params["images"] |= {"kind": "bids", "path": str(head.parent)}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    sources = project / "data/sources.tsv"
    for _ in range(2):
        result = run("inspect", "--refresh", "--project", str(project), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    first = sources.read_text()
    assert "head.nii.gz" in first
    content = np.asarray(nibabel.load(head).dataobj).copy()
    content[0, 0, 0] += 100
    nibabel.save(nibabel.Nifti1Image(content, nibabel.load(head).affine), head)
    result = run("inspect", "--refresh", "--project", str(project), cwd=tmp_path)
    assert "1 images; 1 new or changed, 1 changed or no longer here; runs of" in result.stderr
    assert sources.read_text() != first
