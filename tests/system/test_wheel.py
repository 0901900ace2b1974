"""A wheel in an empty environment, away from any checkout: what works without the extras."""

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest
from packaging.requirements import Requirement

from champions import write_champion
from model_server import free_port, running_server
from voxcast import __version__
from voxcast.errors import EXTRAS

PROJECT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(dependencies: list[str]) -> set[str]:
    """Return the names of ``dependencies`` and of all that those need, with the extras named."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in dependencies]
    while waiting:
        requirement = waiting.pop()
        name, extras = normalised(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            wanted = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in {"", *extras}
            )
            if wanted:
                waiting.append(needed)
    return {name for name, _ in seen}


def wheel_environment(folder: Path, dependencies: list[str]) -> Path:
    """Build the wheel and install it in a new environment in ``folder``; return that."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(PROJECT)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = folder.glob("voxcast-*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # The installed dependencies stand in for a download of several hundred megabytes.
    for name in required(dependencies):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            distribution = importlib.metadata.distribution(name)
            for top in {path.parts[0] for path in distribution.files or []}:
                link, source = packages / top, Path(str(distribution.locate_file(top)))
                if top not in ("..", "__pycache__") and not link.exists():
                    link.symlink_to(source.resolve())
    install = ["--python", str(venv / "bin" / "python"), "install", "--no-deps", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    return venv


SAMPLES = PROJECT / "tests" / "samples"
SERVER_START_S = 240


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment that holds the wheel and its dependencies, and nothing else."""
    return wheel_environment(tmp_path_factory.mktemp("wheel"), PYPROJECT["dependencies"])


def test_the_page_of_the_service_is_in_it(environment: Path) -> None:
    (installed,) = environment.glob("lib/python*/site-packages/voxcast/web/page")
    source = PROJECT / "src" / "voxcast" / "web" / "page"
    assert {p.name: p.read_bytes() for p in installed.iterdir()} == {
        p.name: p.read_bytes() for p in source.iterdir()
    }
    assert (installed / "index.html").is_file()


class Away:
    """The command of the wheel, run in an empty folder."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.binaries, self.folder = environment / "bin", folder
        self._variables = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PYTHONPATH", "VOXCAST_PROJECT") and not key.startswith("MLFLOW_")
        }

    def run(self, program: str, *arguments: object, code: int = 0) -> str:
        ended = subprocess.run(
            [self.binaries / program, *map(str, arguments)],
            cwd=self.folder, env=self._variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == code, ended.stderr
        if code:
            assert ended.stderr.startswith("voxcast: ")
            assert ended.stderr.count("\n") == 1
        return ended.stderr if code else ended.stdout

    def voxcast(self, *arguments: object, code: int = 0) -> str:
        return self.run("voxcast", *arguments, code=code)


@pytest.fixture
def away(environment: Path, tmp_path: Path) -> Away:
    return Away(environment, tmp_path)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "sub-1_T1w.nii.gz"
    voxels = np.random.default_rng(0).normal(100, 9, (20, 22, 18)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([3.0, 3.0, 3.0, 1.0])), path)
    return path


def test_the_environment_holds_the_wheel_and_no_heavy_package(away: Away) -> None:
    code = (
        "import importlib.util as u, json, voxcast; "
        f"names = {sorted(EXTRAS)!r}; "
        "print(json.dumps([voxcast.__file__, voxcast.__version__, "
        "[n for n in names if u.find_spec(n)]]))"
    )
    file, version, heavy = json.loads(away.run("python", "-c", code))
    assert Path(file).is_relative_to(away.binaries.parent)
    assert (Path(file).parent / "py.typed").is_file()
    assert version == __version__
    assert heavy == []
    assert away.voxcast("--version") == f"voxcast {__version__}\n"


def test_requests_histories_and_laws_need_no_extra(away: Away) -> None:
    requests = json.loads(away.voxcast("requests", "lognormal(3,0.5)", "--json"))
    assert len(requests) > 5
    away.voxcast(
        "history", "import", "sacct", SAMPLES / "imports" / "sacct.txt", "--into", "history"
    )
    fitted = json.loads(
        away.voxcast("history", "variation", "history", "--bootstrap", "20", "--json")
    )
    assert fitted["groups"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a champion, served by the full installation."""
    project = tmp_path_factory.mktemp("served")
    (project / "params.yaml").write_text("")
    write_champion(project, 12)
    port = free_port()
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    with running_server(command, port, project, start_s=SERVER_START_S) as url:
        yield url


def test_a_server_s_predictions_need_no_extra(away: Away, image: Path, server: str) -> None:
    arguments = (
        "predict",
        image,
        "--model",
        server,
        "--app",
        "segment",
        "--cpus",
        "1,2",
        "--json",
    )
    (entry,) = json.loads(away.voxcast(*arguments))
    assert [prediction["cpus"] for prediction in entry["predictions"]] == [1, 2]
    assert all(
        0 < prediction["runtime_s_median"] <= prediction["runtime_s_upper"]
        for prediction in entry["predictions"]
    )


def test_a_missing_extra_is_reported_in_one_line(away: Away) -> None:
    rows = "".join(f"{n % 7},{n * n % 11 + 1}\n" for n in range(40))
    (away.folder / "runs.csv").write_text(f"x,time_s\n{rows}")
    fit = ("learn", "runs.csv", "--target", "time_s", "--out", "model")
    assert "pip install 'voxcast[train]'" in away.voxcast(*fit, code=2)


VERBS_OF_A_PROJECT = (
    "inspect",
    "status reference",
    "recommend x.nii",
    "serve",
)


@pytest.mark.parametrize("verb", VERBS_OF_A_PROJECT)
def test_a_project_verb_outside_a_project_is_refused(away: Away, verb: str) -> None:
    assert "no project here or above" in away.voxcast(*verb.split(), code=2)


def test_a_project_is_written_from_the_wheel(away: Away) -> None:
    written = json.loads(away.voxcast("init", "study", "--json"))
    packed = {path for path in written["files"] if path.startswith(("conf/app/", "pipelines/"))}
    assert {"conf/app/ants_segment.yaml", "pipelines/profile_runs.py"} <= packed
    folder = away.folder / "study"
    for script in (path for path in packed if path.startswith("pipelines/")):
        assert (folder / script).read_bytes() == (PROJECT / script).read_bytes()
    assert json.loads(away.voxcast("inspect", "--json", "--project", folder)) == []
    assert "is a project already" in away.voxcast("init", "study", code=2)


def test_an_extra_brings_the_modules_that_are_reported_with_it() -> None:
    distributions = importlib.metadata.packages_distributions()
    extras = {
        extra: required(dependencies)
        for extra, dependencies in PYPROJECT["optional-dependencies"].items()
        if extra != "all"
    }
    for module, extra in EXTRAS.items():
        names = {normalised(name) for name in distributions[module]}
        assert names & extras[extra], module
        assert not names & required(PYPROJECT["dependencies"]), module
