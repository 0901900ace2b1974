"""``voxcast phases`` and ``voxcast replay`` on recorded histories."""

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from voxcast.cli import main

HISTORY = Path(__file__).parents[3] / "data/history/reference"
ARTIFACT = os.environ.get("VOXCAST_SLANT_ARTIFACT")


@pytest.mark.skipif(not ARTIFACT, reason="VOXCAST_SLANT_ARTIFACT is not set")
def test_the_published_runs_reproduce_the_published_gain(tmp_path: Path, capsys) -> None:
    assert (
        main(["history", "import", "slant", str(ARTIFACT), "--into", str(tmp_path / "slant")]) == 0
    )
    capsys.readouterr()
    assert main(["phases", "chain", str(tmp_path / "slant"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["runs"] == 88
    held = report["held_gb_h"]
    assert held["at_run_peak"] == pytest.approx(99.7, abs=0.1)
    assert held["at_phase_peaks"] == pytest.approx(52.7, abs=0.1)
    assert held["used"] == pytest.approx(32.0, abs=0.1)
    assert len(report["jobs"]) == 7
    assert 1.5 < report["gain"] < 2


def test_a_history_without_phases_says_so(tmp_path: Path, capsys) -> None:
    sample = Path(__file__).parents[2] / "samples/imports/sacct.txt"
    assert main(["history", "import", "sacct", str(sample), "--into", str(tmp_path / "jobs")]) == 0
    assert main(["phases", "chain", str(tmp_path / "jobs")]) == 2
    assert "has no phases, nor traces to read them from" in capsys.readouterr().err


def test_a_damaged_part_is_one_line(tmp_path: Path, capsys) -> None:
    batch = tmp_path / "reference"
    shutil.copytree(HISTORY, batch)
    part = sorted(batch.glob("*/"))[0]
    (part / "runs.parquet").write_bytes(b"PAR1 damaged")
    assert main(["phases", "chain", str(batch), "--app", "ants_segment"]) == 0
    output = capsys.readouterr()
    (line,) = (line for line in output.err.splitlines() if str(part) in line)
    assert "cannot be read" in line
    assert line.endswith("left out")
    assert "ants_segment: 1" in output.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such folder; give a folder of data/history"),
        ([str(HISTORY), "--app", "none"], "has no runs of none"),
        ([str(HISTORY), "--cost", "1,0,much"], "must be 3 numbers"),
        ([str(HISTORY), "--cost=-1,0,0"], "alpha"),
        ([str(HISTORY), "--folds", "1"], "--folds"),
        ([str(HISTORY.with_name("real"))], "3 subjects at full scale, 8 are needed"),
    ],
)
def test_invalid_replays_are_refused(arguments, message: str, capsys) -> None:
    assert main(["history", "replay", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_import_is_replayed_by_what_its_source_states(tmp_path: Path, capsys) -> None:
    rows = ["JobID|JobName|State|Elapsed|TotalCPU|MaxRSS|AllocCPUS|Start"]
    for n in range(24):
        cpus, minutes = 1 + n % 2, 10 + n % 12
        times = f"COMPLETED|00:{minutes}:00|00:{minutes * cpus - 1}:30"
        rows.append(f"{n}|recon_sub-{n % 12:02}|{times}||{cpus}|2024-05-{1 + n:02}T10:00:00")
        rows.append(f"{n}.batch|batch|{times}|{900 + minutes}M|{cpus}|")
    (tmp_path / "jobs.txt").write_text("\n".join(rows) + "\n")
    patterns = ["--pattern", "^([a-z]+)_", "--pattern", "(?P<subject>sub-[0-9]+)"]
    jobs = [
        "history",
        "import",
        "sacct",
        str(tmp_path / "jobs.txt"),
        "--into",
        str(tmp_path / "jobs"),
    ]
    assert main([*jobs, *patterns]) == 0
    capsys.readouterr()
    arguments = ["history", "replay", str(tmp_path / "jobs"), "--trials", "1", "--folds", "2"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "cheapest here: " in printed
    assert max(map(len, printed.splitlines())) <= 120
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["recon"]
    assert report["ways"]["clairvoyant"]["runs"] == 24
    assert report["ways"]["clairvoyant"]["normalised_cost"] == pytest.approx(1.0)


def test_phases_are_read_from_the_traces_where_no_run_logged_any(tmp_path: Path, capsys) -> None:
    part = tmp_path / "history" / "part"
    shutil.copytree(sorted(HISTORY.glob("*/"))[1], part)
    phases = pd.read_parquet(part / "phases.parquet")
    phases[:0].to_parquet(part / "phases.parquet")
    assert main(["phases", "chain", str(part), "--app", "tile_segment", "--json"]) == 0
    output = capsys.readouterr()
    assert "no run logged phases: change points in the traces of" in output.err
    assert json.loads(output.out)["jobs"][0]["phase"] == "phase_1"
