"""``voxcast learn`` and ``voxcast predict --model`` on tables of all sorts."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import Answer, voxcast
from voxcast.errors import TableError
from voxcast.models import regressor
from voxcast.models.regressor import fit

pytestmark = pytest.mark.usefixtures("few_families")
SHORT = ("--target", "seconds", "--time-budget", "1s")


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


@pytest.fixture
def jobs(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "jobs.csv")


def predicted(folder: Path, model: str, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = voxcast(
        "predict", "--model", model, table, "--json", project=folder
    ).json
    return rows


@pytest.fixture(scope="module")
def fitted(folder: Path, few_families: None) -> Answer:
    """A fit; columns that give the target away, and runs that failed."""
    jobs = pd.read_csv(folder / "jobs.csv")
    ends = {0: "FAILED", 1: "TIMEOUT"}
    jobs.assign(
        MaxRSS=jobs["seconds"],
        note=[f"n{n}" for n in range(90)],
        State=[ends.get(n % 9, "COMPLETED") for n in range(90)],
    ).to_csv(folder / "states.csv", index=False)
    excluded = ("--exclude", "job", "--exclude", "site")
    return voxcast(
        "learn", "states.csv", "--target", "seconds", "--trials", 1, *excluded, "--out", "states",
        project=folder,
    )  # fmt: skip


def test_what_is_left_out_and_what_errors_are_of_is_printed(fitted: Answer) -> None:
    assert "10 rows excluded, not completed (failed): 1, 10, 19" in fitted.err
    assert "10 rows excluded, not completed (timeout): 2, 11, 20" in fitted.err
    for text in (
        "left out: MaxRSS is what accounting measures of a run; --keep MaxRSS uses it",
        "left out: note names rows: 70 values in 70 rows",
        "from 70 rows of 70 configurations",
        "errors are for configurations not seen before:",
        "at most 1 for each family",
    ):
        assert text in fitted.out


def test_rows_are_predicted_as_a_text_a_table_and_json(fitted: Answer, folder: Path) -> None:
    lines = voxcast("predict", "--model", "states", "new.csv", project=folder).out.splitlines()
    assert lines[0].split() == ["row", "prediction", "upper", "calibrated", "out", "of", "range"]
    assert [line.split()[0] for line in lines[1:8]] == list("1234567")
    assert max(len(line.split()[1]) for line in lines[1:8]) <= 6
    options = ("--model", "states", "new.csv", "--out", "out.csv")
    written = voxcast("predict", *options, project=folder)
    assert written.out == ""
    assert written.err == "voxcast: out.csv: 7 rows predicted, 0 with a calibrated bound\n"
    predictions = pd.read_csv(folder / "out.csv")
    columns = ["prediction", "upper", "calibrated", "out_of_range", "reason"]
    assert list(predictions) == columns
    assert len(predictions) == 7
    assert predictions["out_of_range"].tolist() == ["tool"] * 7  # a category never measured
    assert not predictions["calibrated"].any()
    rows = predicted(folder, "states", "new.csv")
    assert [row["prediction"] for row in rows] == pytest.approx(predictions["prediction"].tolist())


def test_versions_are_categories_and_stopped_runs_leave_the_bound_uncalibrated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with one version alone looks like numbers; so does one with one node."""
    monkeypatch.setattr(regressor, "FAMILIES", ("median", "boosted"))
    rng = np.random.default_rng(1)
    tool, node = rng.choice(["1.1", "1.10", "2.0-rc1"], 90), rng.choice(["007", "7b"], 90)
    size = np.exp(rng.uniform(0, 5, 90))
    factor = np.select([tool == "1.1", tool == "1.10"], [1.0, 3.0], 0.5) * (1 + (node == "007"))
    state = ["TIMEOUT", "OUT_OF_MEMORY"] * 4 + ["COMPLETED"] * 82
    pd.DataFrame(
        {
            "size": [f"{s:.3f}" if n > 15 else "-" for n, s in enumerate(size)], "tool": tool,
            "node": node, "limit": [f"{s:.1f} GB" for s in size], "State": state,
            "site": [f"s{n % 30:02}" for n in range(90)],
            "seconds": (2 + size) * factor * rng.lognormal(0, 0.05, 90),
        }
    ).to_csv(folder / "versions.csv", index=False)  # fmt: skip
    (folder / "version.csv").write_text("size,tool,node\n10,1.10,007\n50,1.10,007\n10,9,007\n")
    options = ("--target", "seconds", "--group", "site", "--trials", 1, "--out", "versions")
    report = voxcast("learn", "versions.csv", *options, "--json", project=folder).json
    assert report["deterministic"] is True
    assert (report["rows"], report["groups"]) == (82, 30)
    for metrics in (report["metrics"], *report["candidates"].values()):
        assert {"mae", "mape", "median_ape", "upp", "ov_mape", "coverage"} <= set(metrics)
    assert report["metrics"]["mape"] < 0.5 * report["candidates"]["median"]["mape"]
    assert report["columns"]["left_out"]["limit"].startswith("is text, such as")
    assert json.loads((folder / "versions/card.json").read_text()) == report
    assert report["bound"] == {
        "calibrated": False, "quantile": 0.9, "unit": "groups", "complete": 22, "stopped": 8,
        "missing": 59, "highest_quantile": 0.7, "reason": "too many stopped runs",
    }  # fmt: skip
    rows = predicted(folder, "versions", "version.csv")
    assert [row["prediction"] for row in rows[:2]] == pytest.approx([12 * 6, 52 * 6], rel=0.2)
    stopped = "too many stopped runs"
    assert [row["reason"] for row in rows] == [[stopped], [stopped], ["out of range", stopped]]
    text = voxcast("predict", "--model", "versions", "version.csv", project=folder).out
    assert "\ntoo many stopped runs: of 30 groups, 8 with a run that was stopped" in text


@pytest.mark.parametrize(("quantile", "calibrated"), [("0.9", False), ("0.7", True)])
def test_a_bound_that_is_not_calibrated_is_said_with_the_highest_that_is(
    folder: Path, jobs: pd.DataFrame, quantile: str, calibrated: bool
) -> None:
    state = ["TIMEOUT", "OUT_OF_MEMORY"] * 4 + ["COMPLETED"] * 82
    jobs.drop(columns="job").assign(site=[f"s{n % 30:02}" for n in range(90)], State=state).to_csv(
        folder / "many.csv", index=False
    )
    options = (*SHORT, "--group", "site", "--quantile", quantile, "--out", f"many-{quantile}")
    text = " ".join(voxcast("learn", "many.csv", *options, project=folder).out.split())
    assert "asked/used" in text
    for said in (
        "the 90 % bound is not calibrated: of 30 groups, 8 with a run",
        "add 59 groups in which all runs completed",
        "take --quantile 0.7, the highest that holds",
    ):
        assert (said in text) != calibrated
    jobs.head(2).assign(tool=["a", "new"]).to_csv(folder / "next.csv", index=False)
    rows = predicted(folder, f"many-{quantile}", "next.csv")
    assert [row["calibrated"] for row in rows] == [calibrated, False]


def test_a_close_column_is_used_said_first_and_written_into_the_card(
    folder: Path, jobs: pd.DataFrame
) -> None:
    jobs.assign(cost=jobs["seconds"] * 7).to_csv(folder / "close.csv", index=False)
    options = ("learn", "close.csv", "--exclude", "job", "--out")
    ranks = "cost ranks the rows as seconds does (correlation 1.0000)"
    lines = voxcast(*options, "close", *SHORT, project=folder).out.splitlines()
    assert lines[0] == f"Is cost known before the run? It {ranks.partition(' ')[2]}."
    assert "--exclude cost" in lines[1]
    card = json.loads((folder / "close/card.json").read_text())
    assert list(card["columns"]["close"]) == ["cost"]
    table = pd.read_csv(folder / "close.csv")
    with pytest.raises(TableError, match=re.escape(f"seconds: {ranks}; --keep or --exclude cost")):
        fit(table, "seconds", exclude=["job"], trials=1, strict=True)
    for option in ("keep", "exclude"):
        words = (*options, option, *SHORT, f"--{option}", "cost", "--json")
        columns = voxcast(*words, project=folder).json["columns"]
        assert columns["close"] == {}
        assert ("cost" in columns["used"]) == (option == "keep")


def test_odd_values_are_flagged_or_refused(folder: Path, jobs: pd.DataFrame) -> None:
    jobs.assign(same=5, huge=1e300 * jobs["size"]).to_csv(folder / "odd.csv", index=False)
    options = (*SHORT, "--exclude", "job", "--out")
    voxcast("learn", "odd.csv", *options, "odd", project=folder)
    new = pd.read_csv(folder / "odd.csv").head(4)
    new["size"] = [10.0, 1e300, -1e300, float("inf")]
    new.to_csv(folder / "odd_new.csv", index=False)
    flagged = predicted(folder, "odd", "odd_new.csv")
    assert ["size" in str(row["out_of_range"]) for row in flagged] == [False, True, True, True]
    new.assign(size=["1", "2", "big", "3"]).to_csv(folder / "odd_new.csv", index=False)
    refused = voxcast("predict", "--model", "odd", "odd_new.csv", project=folder, code=2).err
    assert "size: 'big' in row 3 is not a number" in refused
    for name, values in (("same.csv", 7.0), ("huge.csv", 1e300 * jobs["seconds"])):
        jobs.assign(seconds=values).to_csv(folder / name, index=False)
        message = voxcast("learn", name, *options, "gone", project=folder, code=2).err
        assert len(message.splitlines()) == 1
    assert not (folder / "gone").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("learn gone.csv --target x --out m", "gone.csv: cannot be read"),
        ("learn jobs.csv --target x --out m", "x: no such column"),
        ("learn jobs.csv --target tool --out m", "tool: is text"),
        ("learn jobs.csv --target size --quantile 2 --out m", "--quantile"),
        ("learn jobs.csv --target size --trials 0 --out m", "--trials"),
        ("learn jobs.csv --target size --fast", "--fast: unknown option"),
        (
            "learn jobs.csv --target size --keep job --exclude job --out m",
            "both kept and excluded",
        ),
        ("learn jobs.csv --target size --out jobs.csv", "jobs.csv: is not a folder"),
        ("learn jobs.csv --target size --time-budget -1s --out m", "--time-budget"),
        ("predict --model gone new.csv --json", "gone: no such model"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, arguments: str, message: str) -> None:
    refused = voxcast(*arguments.split(), project=folder, code=2).err
    assert message in refused
    assert len(refused.strip().splitlines()) == 1
