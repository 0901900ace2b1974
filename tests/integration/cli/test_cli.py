"""The command line on real files: results on stdout, talk on stderr, exit code 2 for bad input."""

import json
import socket
import subprocess
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

import voxcast
import voxcast.cli.images  # before a test gives up its rights
from commands import attempt as run
from voxcast.cli import VERBS

PROJECT = Path(__file__).parents[3]


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    last: str = result.stderr.strip().splitlines()[-1]
    assert last.startswith("voxcast")
    return last


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


def test_help_and_version(tmp_path: Path) -> None:
    result = run("--help", cwd=tmp_path)
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in VERBS)
    assert run("--version", cwd=tmp_path).stdout.strip() == f"voxcast {voxcast.__version__}"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help(verb: str, tmp_path: Path) -> None:
    result = run(verb, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert f"voxcast {verb}" in result.stdout


def test_no_verb_at_all_shows_the_help(tmp_path: Path) -> None:
    result = run(cwd=tmp_path)
    assert result.returncode == 2
    assert "predict" in result.stderr


def test_serve_refuses_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "cannot listen" in refused(run("serve", "--port", port, cwd=tmp_path))


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


def test_predict_without_a_registry_says_how_to_get_one(head: Path) -> None:
    (head.parent / "params.yaml").touch()
    message = refused(run("predict", str(head), cwd=head.parent, MLFLOW_TRACKING_URI=""))
    assert "voxcast learn" in message


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--port", "-5"), "--port: must be 1 to 65535, not -5"),
        (("--port", "70000"), "--port: must be 1 to 65535, not 70000"),
    ],
)
def test_numbers_that_no_server_can_have_are_refused(
    options: tuple[str, str], message: str, tmp_path: Path
) -> None:
    assert message in refused(run("serve", *options, cwd=tmp_path))


def test_inspect_lists_the_characteristics_with_unit_cost_and_source(head: Path) -> None:
    listed = json.loads(run("inspect", "--list", "--json", cwd=head.parent).stdout)
    rows = {row["name"]: row for row in listed}
    image = json.loads(run("inspect", str(head), "--json", cwd=head.parent).stdout)[0]
    assert set(rows) <= set(image)
    assert rows["foreground_voxels"]["unit"] == "voxels"
    assert rows["foreground_voxels"]["cost"] == "native mask"
    assert "ANTs" in rows["foreground_voxels"]["source"]
