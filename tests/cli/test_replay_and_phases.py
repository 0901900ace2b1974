"""``voxcast phases`` and ``voxcast replay`` on recorded histories."""

import json
import os
import re
from pathlib import Path

import pytest

from voxcast.cli import main

HISTORY = Path(__file__).parents[2] / "data/history/reference"
ARTIFACT = os.environ.get("VOXCAST_SLANT_ARTIFACT")


@pytest.mark.skipif(not ARTIFACT, reason="VOXCAST_SLANT_ARTIFACT is not set")
def test_the_published_runs_reproduce_the_published_gain(tmp_path: Path, capsys) -> None:
    assert main(["import", "slant", str(ARTIFACT), "--into", str(tmp_path / "slant")]) == 0
    capsys.readouterr()
    assert main(["phases", str(tmp_path / "slant"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["runs"] == 88
    held = report["held_gb_h"]
    assert held["at_run_peak"] == pytest.approx(99.7, abs=0.1)
    assert held["at_phase_peaks"] == pytest.approx(52.7, abs=0.1)
    assert held["used"] == pytest.approx(32.0, abs=0.1)
    assert len(report["jobs"]) == 7
    assert 1.5 < report["gain"] < 2


def test_phases_of_a_recorded_application(capsys) -> None:
    assert main(["phases", str(HISTORY), "--app", "ants_segment"]) == 0
    output = capsys.readouterr()
    assert "41 of 236 runs left out: 41 with other phases" in output.err
    assert "ants_segment: 195 runs" in output.out
    assert "expected of the chain" in output.out
    (atropos,) = (line for line in output.out.splitlines() if "atropos" in line)
    assert re.fullmatch(r"  atropos +[\d.]+ GB +[\d.]+  .+", atropos)
    arguments = ["--app", "ants_segment", "--where", "scale=scaled_down", "--json"]
    assert main(["phases", str(HISTORY), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 41
    assert main(["phases", str(HISTORY)]) == 2
    assert "choose with --app" in capsys.readouterr().err
    assert main(["phases", str(HISTORY), "--app", "ants_segment", "--alpha", "0"]) == 2


def test_request_strategies_are_replayed(capsys) -> None:
    arguments = ["replay", str(HISTORY), "--app", "tile_segment", "--trials", "1", "--folds", "2"]
    assert main([*arguments, "--wait-alpha", "0.5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["tile_segment"]
    cost = {strategy: costs["normalised_cost"] for strategy, costs in report["ways"].items()}
    assert cost["clairvoyant"] == pytest.approx(1.0)
    assert cost["per_image"] < cost["harp_doubling"]
    assert cost["population"] < cost["site_default"]
    low, high = report["ways"]["per_image"]["normalised_cost_interval"]
    assert 1 < low < cost["per_image"] < high
    assert report["over_implied"] == pytest.approx(cost["per_image"] / report["implied"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "not a recorded history"),
        ([str(HISTORY), "--app", "none"], "has no runs of none"),
        ([str(HISTORY), "--gamma", "much"], "must be seconds or `median`"),
        ([str(HISTORY), "--alpha", "-1"], "alpha"),
        ([str(HISTORY), "--folds", "1"], "--folds"),
        ([str(HISTORY), "--site-default", "soon"], "soon"),
        ([str(HISTORY), "--site-default", "0s"], "must be above 0"),
        ([str(HISTORY), "--wait-alpha", "nan"], "--wait-alpha"),
        ([str(HISTORY), "--seed", "-1"], "must not be negative"),
        ([str(HISTORY.with_name("real"))], "3 subjects at full scale, 8 are needed"),
    ],
)
def test_invalid_replays_are_refused(arguments, message: str, capsys) -> None:
    assert main(["replay", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_import_has_no_images_to_replay_by(tmp_path: Path, capsys) -> None:
    sample = Path(__file__).parents[1] / "samples/imports/sacct.txt"
    assert main(["import", "sacct", str(sample), "--into", str(tmp_path / "jobs")]) in (0, 2)
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "jobs")]) == 2
    message = capsys.readouterr().err
    assert "images.parquet" in message
    assert "recorded by voxcast" in message
