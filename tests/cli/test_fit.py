"""``voxcast fit`` and ``voxcast predict --model`` as commands, on tables of all sorts."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def voxcast(folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voxcast.cli", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fit")
    rng = np.random.default_rng(0)
    size, tool = np.exp(rng.uniform(0, 4, 90)), rng.choice(["a", "b"], 90)
    table = pd.DataFrame(
        {
            "job": range(90), "site": [f"s{n % 9}" for n in range(90)], "size": size, "tool": tool,
            "seconds": (2 + size * np.where(tool == "b", 2, 1)) * rng.lognormal(0, 0.05, 90),
        }
    )  # fmt: skip
    table.to_csv(made / "jobs.csv", index=False)
    table.assign(tool="new").tail(7).to_csv(made / "asked.csv", index=False)
    return made


def test_a_table_is_fitted_judged_and_asked(folder: Path) -> None:
    how = ("--target", "seconds", "--group", "site", "--id", "job", "--trials", "1")
    done = voxcast(folder, "fit", "jobs.csv", *how, "--out", "model", "--json")
    said = json.loads(done.stdout)
    assert said["deterministic"] is True
    assert (said["rows"], said["groups"]) == (90, 9)
    for own in (said["metrics"], *said["candidates"].values()):
        assert {"mae", "mape", "median_ape", "upp", "ov_mape", "coverage"} <= set(own)
    assert said["metrics"]["mape"] < 15 < said["candidates"]["median"]["mape"]
    voxcast(folder, "predict", "--model", "model", "asked.csv", "--csv", "out.csv")
    found = pd.read_csv(folder / "out.csv")
    assert list(found) == ["prediction", "upper", "out_of_range"]
    assert len(found) == 7
    assert found["out_of_range"].tolist() == ["column.tool"] * 7  # a category never measured
    asked = json.loads(
        voxcast(folder, "predict", "--model", "model", "asked.csv", "--json").stdout
    )
    assert [one["prediction"] for one in asked] == pytest.approx(found["prediction"].tolist())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "gone.csv", "--target", "x", "--out", "m"), "gone.csv: cannot be read"),
        (("fit", "jobs.csv", "--target", "x", "--out", "m"), "x: no such column"),
        (("fit", "jobs.csv", "--target", "tool", "--out", "m"), "tool: holds text"),
        (("fit", "jobs.csv", "--target", "size", "--quantile", "2", "--out", "m"), "--quantile"),
        (("fit", "jobs.csv", "--target", "size", "--trials", "0", "--out", "m"), "--trials"),
        (("predict", "--model", "gone", "asked.csv"), "gone: holds no model of a table"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Path, arguments, said: str) -> None:
    done = voxcast(folder, *arguments, status=2)
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
