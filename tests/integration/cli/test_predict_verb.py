"""``voxcast predict`` of a registered champion: light, from a read-only project, with options."""

from __future__ import annotations

import csv
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest

from commands import attempt
from lab import lab
from model_server import free_port, running_server

PROJECT = Path(__file__).parents[3]
# Root may write to everything: without capabilities it is a user like others.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
HEAVY = {"mlflow", "torch", "sklearn", "pandas", "scipy.stats", "threadpoolctl"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def environment() -> dict[str, str]:
    return {
        k: v
        for k, v in os.environ.items()
        if k not in ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID")
    }


def copied(project: Path, folder: Path) -> Path:
    """Copy a project."""
    return Path(shutil.copytree(project, folder))


def run(
    *arguments: str, cwd: Path, prefix: list[str] | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call a verb; with a prefix, as a process of its own."""
    if not prefix:
        return attempt(*arguments, cwd=cwd, **(env or {}))
    names = ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI")
    environment = {k: v for k, v in os.environ.items() if k not in names} | (env or {})
    return subprocess.run(
        [*prefix, sys.executable, "-m", "voxcast.cli", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("voxcast: ")
    return line


@pytest.mark.parametrize("words", [("predict", "--header-only"), ("recommend",)])
def test_an_image_is_answered_without_heavy_modules(project: Path, words: tuple[str, ...]) -> None:
    script = (
        "import sys; from voxcast.cli import main\n"
        f"code = main([*{words!r}, 'head.nii.gz', '--json'])\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout)
    assert result.stderr.splitlines()[-1] == "[]"


@pytest.fixture
def read_only(project: Path, tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a copy of the project that cannot be written to, and a prefix of commands."""
    folder = copied(project, tmp_path / "read_only")
    prefix = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root writes to read-only folders, and setpriv is not installed")
        prefix = WITHOUT_CAPABILITIES
    paths = [folder, *folder.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    for path in paths:
        path.chmod(modes[path] & ~0o222)
    written = subprocess.run([*prefix, "touch", folder / "new"], capture_output=True, check=False)
    assert written.returncode != 0
    yield folder, prefix
    for path in paths:
        path.chmod(modes[path] | 0o200)


def snapshot(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_read_only_project_answers(
    read_only: tuple[Path, list[str]], project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    folder, prefix = read_only
    (empty := tmp_path / "no_project").mkdir()
    before = snapshot(folder)
    for arguments in (
        ("predict", "head.nii.gz", "--json"),
        ("predict", "head.nii.gz", "--header-only", "--explain", "--json"),
        ("recommend", "head.nii.gz", "--json"),
    ):
        result = run(*arguments, cwd=folder, prefix=prefix)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)
    port = free_port()
    command = [*prefix, sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    command += ["--project", str(folder)]
    with running_server(command, port, project, environment) as url:
        here, there = (
            json.loads(
                run("predict", "head.nii.gz", "--json", *more, cwd=folder, prefix=prefix).stdout
            )
            for more in ((), ("--model", url))
        )
        assert there == here
        outside = run("predict", str(project / "head.nii.gz"), "--json", "--model", url, cwd=empty)
        assert json.loads(outside.stdout)[0]["predictions"] == here[0]["predictions"]
    assert snapshot(folder) == before


def test_the_cache_of_the_project_remembers_images_and_none_is_used_if_unset(
    project: Path, tmp_path: Path
) -> None:
    folder = copied(project, tmp_path / "project")
    cache = folder / "build" / "cache"
    shutil.rmtree(cache, ignore_errors=True)  # of other tests
    plain = run("predict", "head.nii.gz", "--json", cwd=folder, env={"VOXCAST_CACHE": ""})
    assert not cache.exists()
    for _ in range(2):
        again = run("predict", "head.nii.gz", "--json", cwd=folder)
        assert json.loads(again.stdout) == json.loads(plain.stdout)
        assert len(list(cache.rglob("*.npz"))) == 1
    not_a_folder = {"VOXCAST_CACHE": str(folder / "head.nii.gz")}
    message = refused(run("predict", "head.nii.gz", cwd=folder, env=not_a_folder))
    assert "cannot be used as a cache" in message


def test_predictions_of_images_are_written_as_csv(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "predictions.csv"
    result = run("predict", "head.nii.gz", "--json", "--out", str(path), cwd=project)
    (predictions,) = json.loads(result.stdout)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == 2 * ["head.nii.gz"]
    for row, prediction in zip(rows, predictions["predictions"], strict=True):
        assert float(row["runtime_s_upper"]) == prediction["runtime_s_upper"]
    assert run("predict", "head.nii.gz", "--out", str(path), cwd=project).stdout == ""


def test_a_volume_that_itk_refuses_is_predicted_with_a_warning(
    project: Path, tmp_path: Path
) -> None:
    image = nibabel.load(project / "head.nii.gz")
    voxels = np.asarray(image.dataobj).astype(np.int64)
    path = tmp_path / "int64.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels, image.affine, dtype="int64"), path)
    for options in ((), ("--header-only",)):
        result = run("predict", str(path), "--json", *options, cwd=project)
        assert json.loads(result.stdout)[0]["predictions"]
        (line,) = [line for line in result.stderr.splitlines() if "ITK" in line]
        assert f"{path}: applications built on ITK, such as ANTs, refuse it: its voxels" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("head.nii.gz", "--app", "unheard"),
            "unheard: unknown application; the model has segment",
        ),
        (("head.nii.gz", "--quantile", "high"), "--quantile: must be a valid number"),
        (("head.nii.gz", "--quantile", "1"), "must be between 0.5 and 1"),
        (("head.nii.gz", "--cpus", "1,0"), "must be whole numbers of at least 1, not '1,0'"),
        (("head.nii.gz", "--cpus", "two"), "must be whole numbers of at least 1, not 'two'"),
        (("gone.nii.gz",), "gone.nii.gz: no such file"),
        ((), "see `voxcast predict --help`"),
    ],
)
def test_a_refusal_is_one_line(project: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(run("predict", *arguments, cwd=project))


def test_an_application_that_is_described_and_not_learned_is_said_to_be_so(
    project: Path, tmp_path: Path
) -> None:
    folder = copied(project, tmp_path / "with_another")
    (folder / "conf/app").mkdir(parents=True, exist_ok=True)
    (folder / "conf/app/sharpen.yaml").write_text("sharpen: {}\n")
    line = refused(run("predict", "head.nii.gz", "--app", "sharpen", cwd=folder))
    assert "sharpen: has no model yet" in line
    assert "run `voxcast learn IMAGES --app sharpen`" in line
