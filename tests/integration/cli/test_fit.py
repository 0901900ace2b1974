"""``voxcast fit`` and ``voxcast predict --model`` as commands, on tables of all sorts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxcast.apps.launch import THREAD_VARIABLES


def voxcast(folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voxcast.cli", *arguments]
    one_thread = dict.fromkeys(THREAD_VARIABLES, "1")  # tests run beside each other
    result = subprocess.run(
        command, cwd=folder, env=os.environ | one_thread, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
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
    written = voxcast(folder, "predict", "--model", "model", "new.csv", "--csv", "out.csv")
    assert written.stdout == ""
    assert written.stderr == "voxcast: out.csv: 7 rows predicted, 0 with a calibrated bound\n"
    predictions = pd.read_csv(folder / "out.csv")
    columns = ["prediction", "upper", "calibrated", "out_of_range", "reason"]
    assert list(predictions) == columns
    assert len(predictions) == 7
    assert predictions["out_of_range"].tolist() == ["tool"] * 7  # a category never measured
    assert not predictions["calibrated"].any()
    rows = json.loads(voxcast(folder, "predict", "--model", "model", "new.csv", "--json").stdout)
    assert [row["prediction"] for row in rows] == pytest.approx(predictions["prediction"].tolist())


def test_a_leak_is_left_out_named_and_kept_on_request(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv")
    table.assign(MaxRSS=table["seconds"], note=[f"n{n}" for n in range(90)]).to_csv(
        folder / "leak.csv", index=False
    )
    options = ("--target", "seconds", "--group", "site", "--trials", "1", "--id", "job")
    text = voxcast(folder, "fit", "leak.csv", *options, "--out", "honest").stdout
    assert "left out: MaxRSS is what accounting measures of a run; --keep MaxRSS uses it" in text
    assert "left out: note names rows: 90 values in 90 rows" in text
    voxcast(folder, "predict", "--model", "honest", "new.csv", "--csv", "honest.csv")


def test_a_close_column_is_used_said_first_and_written_into_the_card(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv")
    table.assign(cost=table["seconds"] * 7).to_csv(folder / "close.csv", index=False)
    options = ("--target", "seconds", "--trials", "1", "--id", "job", "--out", "close")
    lines = voxcast(folder, "fit", "close.csv", *options).stdout.splitlines()
    assert lines[0] == "Is this known before the run? It gives seconds nearly exactly:"
    assert lines[1].startswith(
        "  cost ranks the rows as seconds does (correlation 1.0000); with it"
    )
    assert "--exclude cost" in lines[2]
    card = json.loads((folder / "close/card.json").read_text())
    (close,) = card["columns"]["close"]
    assert close["columns"] == ["cost"]
    assert 0 < close["median_ape_with"] < close["median_ape_without"]
    strict = (*options[:-1], "strict", "--strict")
    refused = voxcast(folder, "fit", "close.csv", *strict, status=2).stderr
    assert "seconds: cost ranks the rows" in refused
    assert refused.endswith("; --keep or --exclude cost\n")
    assert not (folder / "strict").exists()
    for answer in ("--keep", "--exclude"):
        again = ("fit", "close.csv", *strict, answer, "cost", "--force", "--json")
        columns = json.loads(voxcast(folder, *again).stdout)["columns"]
        assert columns["close"] == []
        assert ("cost" in columns["used"]) == (answer == "--keep")


def test_failed_runs_are_said_and_rows_are_printed_by_number(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv")
    state = [
        "FAILED" if n % 9 == 0 else "TIMEOUT" if n % 9 == 1 else "COMPLETED" for n in range(90)
    ]
    table.assign(State=state).to_csv(folder / "states.csv", index=False)
    options = ("--target", "seconds", "--trials", "1", "--id", "job", "--id", "site")
    completed = voxcast(folder, "fit", "states.csv", *options, "--out", "states")
    assert "10 rows excluded, not completed (failed): 1, 10, 19" in completed.stderr
    assert "10 rows excluded, not completed (timeout): 2, 11, 20" in completed.stderr
    assert "from 70 rows of 70 configurations" in completed.stdout
    assert "errors are for configurations not seen before:" in completed.stdout
    assert "at most 1 for each family" in completed.stdout
    everything = ("--out", "all_states", "--keep-failed", "--json")
    assert (
        json.loads(voxcast(folder, "fit", "states.csv", *options, *everything).stdout)["rows"]
        == 90
    )
    lines = voxcast(folder, "predict", "--model", "states", "new.csv").stdout.splitlines()
    assert lines[0].split() == ["row", "prediction", "upper", "calibrated", "out", "of", "range"]
    assert [line.split()[0] for line in lines[1:8]] == list("1234567")
    assert max(len(line.split()[1]) for line in lines[1:8]) <= 6


def test_a_bound_that_too_many_stopped_runs_leave_uncalibrated_says_so(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv").drop(columns="job")
    table["site"] = [f"s{n % 30:02}" for n in range(90)]
    few, many = ["COMPLETED"] * 90, ["COMPLETED"] * 90
    few[:1], many[:8] = ["TIMEOUT"], ["TIMEOUT", "OUT_OF_MEMORY"] * 4
    for name, state in (("few", few), ("many", many)):
        table.assign(State=state).to_csv(folder / f"{name}.csv", index=False)
        options = ("--target", "seconds", "--group", "site", "--trials", "1", "--out", name)
        text = " ".join(voxcast(folder, "fit", f"{name}.csv", *options).stdout.split())
        assert "asked/used" in text
        assert ("the 90 % bound is not calibrated: of 30 groups, 8 with a run" in text) == (
            name == "many"
        )
        assert ("add 59 groups in which all runs completed" in text) == (name == "many")
        assert ("take --quantile 0.7, the highest that holds" in text) == (name == "many")
    card = json.loads((folder / "many/card.json").read_text())
    assert card["bound"] == {
        "calibrated": False, "quantile": 0.9, "unit": "groups", "complete": 22, "stopped": 8,
        "missing": 59, "highest_quantile": 0.7, "reason": "too many stopped runs",
    }  # fmt: skip
    table.head(2).assign(tool=["a", "new"]).to_csv(folder / "next.csv", index=False)
    text = voxcast(folder, "predict", "--model", "many", "next.csv").stdout
    assert "\ntoo many stopped runs: of 30 groups, 8 with a run that was stopped" in text
    rows = json.loads(voxcast(folder, "predict", "--model", "many", "next.csv", "--json").stdout)
    assert [row["reason"] for row in rows] == [
        ["too many stopped runs"], ["out of range", "too many stopped runs"]
    ]  # fmt: skip
    again = ("fit", "many.csv", *options[:-1], "lower", "--quantile", "0.7")
    assert "bound is not calibrated" not in voxcast(folder, *again).stdout
    rows = json.loads(voxcast(folder, "predict", "--model", "lower", "next.csv", "--json").stdout)
    assert [row["calibrated"] for row in rows] == [True, False]
    assert [row["reason"] for row in rows] == [[], ["out of range"]]


def test_of_a_throughput_and_a_size_no_single_column_is_blamed(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv")
    leak = table.assign(mb_per_s=table["size"] / table["seconds"]).drop(columns=["job", "site"])
    leak.to_csv(folder / "speed.csv", index=False)
    options = ("--target", "seconds", "--trials", "1", "--out", "speed")
    text = voxcast(folder, "fit", "speed.csv", *options).stdout
    assert "of size and mb_per_s leave out with --exclude what is known only after" in text
    assert "--exclude size" not in text


def test_a_column_is_kept_and_an_earlier_model_replaced_on_request(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv")
    table.assign(cpu_s=table["seconds"]).to_csv(folder / "cpu.csv", index=False)
    options = ("fit", "cpu.csv", "--target", "seconds", "--trials", "1", "--id", "job")
    (folder / "models/one").mkdir(parents=True)
    for name, content in (("table_model.json", "{}"), ("note.txt", "mine")):
        (folder / "models/one" / name).write_text(content)
    refused = voxcast(folder, *options, "--out", "models/one", status=2).stderr
    assert refused == "voxcast: models/one: holds a model; --force replaces it\n"
    force = ("--keep", "cpu_s", "--json", "--out", "models/one", "--force")
    columns = json.loads(voxcast(folder, *options, *force).stdout)["columns"]
    assert columns["used"] == ["cpu_s", "site", "size", "tool"]
    assert (set(columns["kept"]), columns["left_out"]) == ({"cpu_s"}, {})
    assert not (folder / "models/one/note.txt").exists()
    assert [path.name for path in (folder / "models").iterdir()] == ["one"]
    (folder / "notes").mkdir()
    (folder / "notes" / "note.txt").write_text("mine")
    other = voxcast(folder, *options, "--out", "notes", "--force", status=2).stderr
    assert "notes: holds other files than a model" in other


def test_odd_values_are_flagged_or_refused(folder: Path) -> None:
    table = pd.read_csv(folder / "jobs.csv")
    table.assign(same=5, huge=1e300 * table["size"]).to_csv(folder / "odd.csv", index=False)
    options = ("--target", "seconds", "--trials", "1", "--id", "job", "--out", "odd")
    voxcast(folder, "fit", "odd.csv", *options)
    new = pd.read_csv(folder / "odd.csv").head(4)
    new["size"] = [10.0, 1e300, -1e300, float("inf")]
    new.to_csv(folder / "odd_new.csv", index=False)
    voxcast(folder, "predict", "--model", "odd", "odd_new.csv", "--csv", "odd_out.csv")
    predictions = pd.read_csv(folder / "odd_out.csv", keep_default_na=False)
    assert predictions["out_of_range"].str.contains("size").tolist() == [False, True, True, True]
    new.assign(size=["1", "2", "big", "3"]).to_csv(folder / "odd_new.csv", index=False)
    refused = voxcast(folder, "predict", "--model", "odd", "odd_new.csv", status=2).stderr
    assert "size: 'big' in row 3 is not a number" in refused
    for name, values in (("same.csv", 7.0), ("huge.csv", 1e300 * table["seconds"])):
        table.assign(seconds=values).to_csv(folder / name, index=False)
        message = voxcast(folder, "fit", name, *options[:-1], "gone", status=2).stderr
        assert len(message.splitlines()) == 1
    assert not (folder / "gone").exists()


def test_a_time_budget_gives_a_model_of_a_sample(folder: Path) -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 100, 6000)
    columns = {f"x{n}": rng.normal(size=6000) for n in range(6)}
    table = pd.DataFrame({"size": size, **columns, "seconds": size * rng.lognormal(0, 0.1, 6000)})
    table.to_csv(folder / "long.csv", index=False)
    options = ("--target", "seconds", "--time-budget", "5s", "--out", "long", "--json")
    result = voxcast(folder, "fit", "long.csv", *options)
    report = json.loads(result.stdout)
    assert report["rows_with_a_label"] == 6000
    # How many of them there is time for depends on the machine.
    assert 0 < report["rows"] <= 6000
    sampled = f"trained on a sample of {report['rows']} of 6000 rows" in result.stderr
    assert sampled == (report["rows"] < 6000)
    assert not report["deterministic"]
    assert report["metrics"]["mape"] < report["candidates"]["median"]["mape"]


def test_a_new_table_is_read_as_the_model_learned_it(folder: Path) -> None:
    """A file with one version alone looks like numbers; so does one with one node."""
    rng = np.random.default_rng(1)
    tool, node = rng.choice(["1.1", "1.10", "2.0-rc1"], 150), rng.choice(["007", "7b"], 150)
    size = np.exp(rng.uniform(0, 5, 150))
    factor = np.select([tool == "1.1", tool == "1.10"], [1.0, 3.0], 0.5) * (1 + (node == "007"))
    pd.DataFrame(
        {
            "size": [f"{s:.3f}" if n else "-" for n, s in enumerate(size)], "tool": tool,
            "node": node, "limit": [f"{s:.1f} GB" for s in size],
            "seconds": (2 + size) * factor * rng.lognormal(0, 0.05, 150),
        }
    ).to_csv(folder / "versions.csv", index=False)  # fmt: skip
    (folder / "version.csv").write_text("size,tool,node\n10,1.10,007\n50,1.10,007\n")
    options = ("--target", "seconds", "--trials", "1", "--out", "versions")
    text = voxcast(folder, "fit", "versions.csv", *options).stdout
    assert "left out: limit is text, such as" in text
    voxcast(folder, "predict", "--model", "versions", "version.csv", "--csv", "versions-out.csv")
    predictions = pd.read_csv(folder / "versions-out.csv")
    assert predictions["out_of_range"].isna().all()
    assert predictions["prediction"].tolist() == pytest.approx([12 * 6, 52 * 6], rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "gone.csv", "--target", "x", "--out", "m"), "gone.csv: cannot be read"),
        (("fit", "jobs.csv", "--target", "x", "--out", "m"), "x: no such column"),
        (("fit", "jobs.csv", "--target", "tool", "--out", "m"), "tool: is text"),
        (("fit", "jobs.csv", "--target", "size", "--quantile", "2", "--out", "m"), "--quantile"),
        (("fit", "jobs.csv", "--target", "size", "--trials", "0", "--out", "m"), "--trials"),
        (("fit", "jobs.csv", "--target", "size", "--fast"), "fit: "),
        (
            (
                "fit",
                "jobs.csv",
                "--target",
                "size",
                "--keep",
                "job",
                "--exclude",
                "job",
                "--out",
                "m",
            ),
            "job: is both kept and excluded",
        ),
        (
            ("fit", "jobs.csv", "--target", "size", "--out", "jobs.csv"),
            "jobs.csv: is not a folder",
        ),
        (("fit", "jobs.csv", "--target", "size", "--time-budget", "-1s", "--out", "m"), "fit: "),
        (("predict", "--model", "gone", "new.csv"), "gone: contains no model of a table"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, arguments, message: str) -> None:
    result = voxcast(folder, *arguments, status=2)
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
