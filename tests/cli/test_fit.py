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
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    rng = np.random.default_rng(0)
    size, tool = np.exp(rng.uniform(0, 4, 90)), rng.choice(["a", "b"], 90)
    table = pd.DataFrame(
        {
            "job": range(90), "site": [f"s{n % 9}" for n in range(90)], "size": size, "tool": tool,
            "seconds": (2 + size * np.where(tool == "b", 2, 1)) * rng.lognormal(0, 0.05, 90),
        }
    )  # fmt: skip
    table.to_csv(folder / "jobs.csv", index=False)
    table.assign(tool="new").tail(7).to_csv(folder / "new.csv", index=False)
    return folder


def test_a_table_is_fitted_evaluated_and_predicted(folder: Path) -> None:
    options = ("--target", "seconds", "--group", "site", "--id", "job", "--trials", "1")
    result = voxcast(folder, "fit", "jobs.csv", *options, "--out", "model", "--json")
    report = json.loads(result.stdout)
    assert report["deterministic"] is True
    assert (report["rows"], report["groups"]) == (90, 9)
    for metrics in (report["metrics"], *report["candidates"].values()):
        assert {"mae", "mape", "median_ape", "upp", "ov_mape", "coverage"} <= set(metrics)
    assert report["metrics"]["mape"] < 15 < report["candidates"]["median"]["mape"]
    voxcast(folder, "predict", "--model", "model", "new.csv", "--csv", "out.csv")
    predictions = pd.read_csv(folder / "out.csv")
    assert list(predictions) == ["prediction", "upper", "out_of_range"]
    assert len(predictions) == 7
    assert predictions["out_of_range"].tolist() == ["tool"] * 7  # a category never measured
    rows = json.loads(voxcast(folder, "predict", "--model", "model", "new.csv", "--json").stdout)
    assert [row["prediction"] for row in rows] == pytest.approx(predictions["prediction"].tolist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "gone.csv", "--target", "x", "--out", "m"), "gone.csv: cannot be read"),
        (("fit", "jobs.csv", "--target", "x", "--out", "m"), "x: no such column"),
        (("fit", "jobs.csv", "--target", "tool", "--out", "m"), "tool: is text"),
        (("fit", "jobs.csv", "--target", "size", "--quantile", "2", "--out", "m"), "--quantile"),
        (("fit", "jobs.csv", "--target", "size", "--trials", "0", "--out", "m"), "--trials"),
        (("predict", "--model", "gone", "new.csv"), "gone: contains no model of a table"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, arguments, message: str) -> None:
    result = voxcast(folder, *arguments, status=2)
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
