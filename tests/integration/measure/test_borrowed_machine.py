"""Measuring on a machine that has little more than NumPy, from a list of prepared cells."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from voxcast.measure.host import host_class, host_facts
from voxcast.measure.plan import lend_cells
from voxcast.records import App, Cell, Configuration
from voxcast.runs.series import MEASURED, load_records, runs_in, traces_of

SOURCES = Path(__file__).parents[3] / "src"
BLOCKED = (
    "pandas", "pyarrow", "pydantic", "scipy", "sklearn", "yaml", "omegaconf", "hydra", "mlflow",
    "tqdm", "psutil", "dvc", "nibabel", "torch",
)  # fmt: skip
# As a start-up file of the interpreter, so that it holds for `python -m` as it is used.
BARE = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
COPY = "import sys, shutil; shutil.copy(sys.argv[1], sys.argv[2] + '/labels.txt'); print('done')"
APP = App("copy", "1", argv=("python3", "-c", COPY, "{image}", "{out}"), devices=("cpu", "gpu"))


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has none of the blocked packages."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BARE)
    return {**os.environ, "PYTHONPATH": f"{tmp_path / 'bare'}{os.pathsep}{SOURCES}"}


def cells(*devices: str) -> list[Cell]:
    return [
        Cell("copy", "", {}, "v1", "s1", Configuration(d, 1, int(d == "gpu")), "full_scale", 0, "")
        for d in devices
    ]


def prepared(folder: Path, *devices: str) -> Path:
    (folder / "here").mkdir(exist_ok=True)
    (folder / "here" / "T1w.nii.gz").write_bytes(b"voxels")
    path = folder / "lent" / "cells.json"
    images = {"v1": folder / "here" / "T1w.nii.gz"}
    lend_cells(path, cells(*devices), {"copy": APP}, images, {"v1": {"seed": 7}})
    return path


def measure(bare: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voxcast.measure", *map(str, arguments)]
    return subprocess.run(command, env=bare, capture_output=True, text=True, check=False)


def test_cells_are_measured_with_numpy_alone_and_read_here(tmp_path, bare):
    path, out = prepared(tmp_path, "cpu", "gpu"), tmp_path / MEASURED / "cpu"
    process = measure(bare, path, out)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "1 runs measured, 0 left of 1\n"
    facts = host_facts()
    if not facts.gpu_models:
        assert "gpu, 1 CPU, 1 GPU: left out, there is no GPU here" in process.stderr
    [run] = runs_in(out).values()
    here = dataclasses.replace(cells("cpu")[0], app_version="1", host_class=host_class(facts))
    assert (run.cell_key, run.outcome) == (here.key, "completed")
    assert json.loads(run.recipe_json) == {"seed": 7}
    assert (out / run.cell_key / "out" / "labels.txt").read_text() == "voxels"
    assert load_records(out)["peak_rss_bytes"].notna().all()
    assert len(traces_of([out / run.cell_key]))
    again = measure(bare, path, out)
    assert again.stdout == "0 runs measured, 0 left of 1\n"


def test_a_damaged_list_or_volume_is_one_line(tmp_path, bare):
    path = prepared(tmp_path, "cpu")
    (volume,) = (path.parent / "volumes").rglob("*.gz")
    volume.unlink()
    refused = {
        "no such volume": path,
        "no such file; prepare the cells first": tmp_path / "none.json",
    }
    (tmp_path / "broken.json").write_text('{"cells": 3}')
    refused["prepare it again"] = tmp_path / "broken.json"
    for message, given in refused.items():
        process = measure(bare, given, tmp_path / "out")
        assert process.returncode == 2
        [line] = process.stderr.splitlines()
        assert message in line
    assert not runs_in(tmp_path / "out")
