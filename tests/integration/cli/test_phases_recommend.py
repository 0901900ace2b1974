"""``voxcast phases recommend``: which machine for a parallel run, without a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands import called
from voxcast.errors import ConfigError, RunError

PROJECT = Path(__file__).parents[3]
HOUR_S = 3600.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy2(PROJECT / "params.yaml", tmp_path)
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    monkeypatch.delenv("VOXCAST_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    write("fast", 1.0 * HOUR_S)
    write("slow", 3.0 * HOUR_S)
    return tmp_path


def write(name, total_s, *, processes=4, level=0.9, method="conformal, by 30 past runs", **more):
    prediction = {
        "total_s": total_s, "lower_s": 0.9 * total_s, "upper_s": 1.1 * total_s, "level": level,
        "processes": processes, "method": method, **more,
    }  # fmt: skip
    Path(f"{name}.json").write_text(json.dumps(prediction))


def recommended(capsys, *arguments):
    runs = ("on_demand=fast.json", "reserved=slow.json", "--memory", "4GB")
    code = called("phases", "recommend", *runs, "--cluster", "cloud", "--json", *arguments)
    return code, json.loads(capsys.readouterr().out)["images"][0]


def test_the_cheapest_in_time_and_the_fastest_in_the_budget(folder, capsys) -> None:
    # A reserved node costs a quarter, and takes three times as long: three quarters.
    code, image = recommended(capsys, "--deadline", "4h")
    assert (code, image["chosen"]["node_type"]) == (0, "reserved")
    assert image["chosen"]["runtime_s_upper"] == pytest.approx(3.3 * HOUR_S)
    assert recommended(capsys, "--deadline", "2h")[1]["chosen"]["node_type"] == "on_demand"
    assert recommended(capsys, "--budget", "1")[1]["chosen"]["node_type"] == "on_demand"
    costs = {row["node_type"]: row["usd"] for row in image["configurations"]}
    assert recommended(capsys, "--budget", str(costs["on_demand"]))[1]["chosen"][
        "node_type"
    ] == "reserved"  # fmt: skip
    code, image = recommended(capsys, "--deadline", "30min")
    assert (code, image["chosen"]) == (2, None)


def test_time_outside_the_trace_counts(folder, capsys) -> None:
    _, image = recommended(capsys, "--outside", "10min")
    times = {row["node_type"]: row["runtime_s_median"] for row in image["configurations"]}
    assert times == {"on_demand": HOUR_S + 600, "reserved": 3 * HOUR_S + 600}


def test_the_text_says_whose_times_these_are_and_whether_they_hold(folder, capsys) -> None:
    write("fast", HOUR_S, method="batch means of this run")
    words = ("on_demand=fast.json", "--cluster", "cloud", "--memory", "4GB")
    called("phases", "recommend", *words)
    text = capsys.readouterr().out
    assert "times are those of fast.json" in text
    assert "not calibrated" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["on_demand=fast.json"], "--memory: is missing"),
        (["fast.json", "--memory", "1GB"], "is not NODE=FILE"),
        (["mars=fast.json", "--memory", "1GB"], "cloud has on_demand, reserved"),
        (["on_demand=no.json", "--memory", "1GB"], "no such file"),
        (["on_demand=wide.json", "--memory", "1GB"], "do not fit the 8 cores"),
        (["on_demand=open.json", "--memory", "1GB"], "has no interval"),
        (["on_demand=text.json", "--memory", "1GB"], "is no JSON"),
        (["on_demand=list.json", "--memory", "1GB"], "is no prediction of a run"),
        (["on_demand=low.json", "--memory", "1GB"], "is a 75 % bound"),
        (["on_demand=word.json", "--memory", "1GB"], "must be numbers above zero"),
        (["on_demand=change.json", "--memory", "1GB"], "get longer or shorter"),
        (["on_demand=endless.json", "--memory", "1GB"], "numbers above zero"),
        (["on_demand=below.json", "--memory", "1GB"], "out of its range"),
        (["on_demand=half.json", "--memory", "1GB"], "out of its range"),
        (["on_demand=sure.json", "--memory", "1GB"], "out of its range"),
        (["--memory", "1GB"], "NODE=FILE...: is missing"),
    ],
)
def test_mistakes_are_told(folder, arguments, message) -> None:
    write("wide", HOUR_S, processes=16)
    write("open", HOUR_S, upper_s=None)
    write("low", HOUR_S, level=0.5)
    write("change", HOUR_S, upper_s=None, trend={"first_s": 1.0, "last_s": 2.0})
    write("endless", HOUR_S, upper_s=float("inf"))
    write("below", HOUR_S, upper_s=0.5 * HOUR_S)
    write("half", HOUR_S, processes=2.5)
    write("sure", HOUR_S, level=90)
    Path("word.json").write_text('{"total_s": "1", "upper_s": 2, "level": 0.9, "processes": 2}')
    Path("text.json").write_text("5 hours")
    Path("list.json").write_text("[5]")
    with pytest.raises((ConfigError, RunError), match=message):
        called("phases", "recommend", *arguments, "--cluster", "cloud")
