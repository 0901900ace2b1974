"""``voxcast phases``: traces recorded, shown, grouped, predicted and transferred."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import called, refusal, voxcast
from voxcast.cli.phases import recorded
from voxcast.errors import ConfigError, RunError, TableError
from voxcast.phases import recorder as mpi_recorder
from voxcast.phases.events import Kind

PROGRAM = Path(__file__).parents[2] / "samples" / "mpi_program.py"
FOLDER = Path("/traces/run")
RECORDER = f"{mpi_recorder.__file__} --out {FOLDER}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("mpirun -np 4 python p.py 5", "mpirun -np 4 python RECORDER p.py 5"),
        ("python3.11 -u -W error -X dev p.py", "python3.11 -u -W error -X dev RECORDER p.py"),
        ("srun /opt/bin/python -m pack.mod --x", "srun /opt/bin/python RECORDER -m pack.mod --x"),
        # An argument of the program is none of ours, even if it reads like an interpreter.
        ("mpirun python p.py python q.py", "mpirun python RECORDER p.py python q.py"),
        (
            "mpirun -np 1 python a.py : -np 2 python b.py",
            "mpirun -np 1 python RECORDER a.py : -np 2 python RECORDER b.py",
        ),
    ],
)
def test_the_recorder_goes_before_each_program(command: str, expected: str) -> None:
    result = " ".join(recorded(command.split(), FOLDER))
    assert result == expected.replace("RECORDER", RECORDER)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("mpirun -np 4 ./solver", "starts no python"),
        ("mpirun python -c pass", "runs no file or module"),
        ("mpirun python", "runs no file or module"),
    ],
)
def test_a_command_that_cannot_be_recorded_is_refused(command: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        recorded(command.split(), FOLDER)


@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_a_program_is_recorded_and_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "trace")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]
    assert (
        called("phases", "record", "--out", folder, "--json", "--", *command, str(PROGRAM), "1")
        == 0
    )
    recorded_run = json.loads(capfd.readouterr().out)
    assert recorded_run["processes"] == 2
    assert recorded_run["missing"] == []
    with pytest.raises(RunError, match="name a new folder"):
        called("phases", "record", "--out", folder, "--", *command, str(PROGRAM), "1")


def test_a_command_without_dashes_before_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-n: unknown option"):
        called("phases", "record", "--out", tmp_path, "mpirun", "-np", "2", "python", "p.py")


@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_a_program_that_does_not_communicate_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "serial.py"
    program.write_text("print(1)\n")
    assert (
        called(
            "phases",
            "record",
            "--out",
            str(tmp_path / "trace"),
            "--",
            sys.executable,
            str(program),
        )
        == 0
    )
    captured = capfd.readouterr()
    assert "no communication was recorded" in captured.err
    assert "1 process, 1 event (1 local)" in captured.out


SAMPLES = Path(__file__).parents[2] / "samples"
KMEANS = SAMPLES / "kmeans_mpi_trace"


def test_the_terminal_shows_phases_a_line_for_each_process_and_collectives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert called("phases", "show", str(KMEANS)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "4 processes, 43 ticks, 7.37 s; computation 71%, communication 29%" in lines[0]
    assert lines[2].split()[:4] == ["A", "1", "MPI_Allreduce", "1-10"]
    lanes = [line for line in lines if line.startswith("  rank ")]
    assert [lane.split("|")[0].strip() for lane in lanes] == [f"rank {n}" for n in range(4)]
    for lane in lanes:
        text = lane.split("|")[1]
        assert len(lane) <= 80
        # First the generation of points until the broadcast, then the iterations.
        assert text.upper().rstrip("-+. ") == text.upper().count("B") * "B" + "A" * (
            len(text.rstrip("-+. ")) - text.upper().count("B")
        )
    assert any(line.split()[:3] == ["MPI_Allreduce", "4", "40"] for line in lines)


def test_json_has_what_the_page_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert called("phases", "show", str(KMEANS), "--json", "--html", str(page)) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert [phase["weight"] for phase in content["phases"]] == [1, 40]
    assert [row["process"] for row in content["by_process"]] == [f"rank {n}" for n in range(4)]
    assert content["collectives"][0]["operation"] == "MPI_Allreduce"
    assert f"wrote {page}" in captured.err
    assert "MPI_Allreduce 1-10 kB" in page.read_text(encoding="utf-8")


def test_an_archive_of_eztrace_is_shown_with_its_messages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("otf2")
    assert called("phases", "show", str(SAMPLES / "eztrace_ring")) == 0
    captured = capsys.readouterr()
    assert "Messages: 12 between 3 pairs of processes" in captured.out
    assert "missing" in captured.err


def test_bad_input_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file or folder"):
        called("phases", "show", str(tmp_path / "nothing"))
    with pytest.raises(RunError, match="holds no trace"):
        called("phases", "show", str(tmp_path))
    with pytest.raises(ConfigError, match="is a folder"):
        called("phases", "show", str(KMEANS), "--html", str(tmp_path))


PROCESSES = 3
ITERATION_NS, CALL_NS, START_NS = 4_000_000, 500_000, 50_000_000


def write_trace(folder, iterations, *, slower=1.0, seed=0, iteration_bytes=80, growth=0.0):
    """Write what the recorder writes for a start, iterations with an all-reduce, and an end."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    jitter = 1 + 0.02 * rng.standard_normal(iterations) + growth * np.arange(iterations)
    for rank in range(PROCESSES):
        group = {"number": 0, "ranks": list(range(PROCESSES)), "earlier": 0}
        events, clock = [{"ph": "M", "name": "communicator", "args": group}], 0
        works = [(0, "start", 0), (START_NS, "MPI_Bcast", 800)]
        works += [(ITERATION_NS * j, "MPI_Allreduce", iteration_bytes) for j in jitter]
        for work_ns, operation, size in works:
            begin = clock + int(work_ns * slower)
            clock = begin + int(CALL_NS * slower) * (operation != "start")
            arguments = {
                "kind": int(Kind.COLLECTIVE), "size_bytes": size, "group": 0, "peer": -1,
                "tag": -1, "computation_ns": int(work_ns * slower),
            }  # fmt: skip
            events.append({
                "ph": "X", "cat": "mpi", "name": operation, "ts": begin / 1000,
                "dur": (clock - begin) / 1000, "args": arguments,
            })  # fmt: skip
        content = {
            "distributedInfo": {"run": "r", "rank": rank, "world_size": PROCESSES},
            "baseTimeNanoseconds": 10**9 * rank, "traceEvents": events, "unrecorded": {},
        }  # fmt: skip
        (folder / f"rank-{rank:05d}.json").write_text(json.dumps(content))
    return folder


def printed(capsys, *arguments):
    assert called("phases", *(str(argument) for argument in arguments)) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "trace", 200)


def test_a_signature_adds_up_to_the_run(trace, capsys) -> None:
    result = printed(capsys, "signature", trace, "--json")
    assert result["total_s"] == pytest.approx(result["elapsed_s"])
    assert result["elapsed_s"] == pytest.approx(0.0505 + 200 * 0.0045, rel=0.01)
    assert [(p["communication"], p["weight"]) for p in result["phases"]] == [
        ("MPI_Bcast 100-1000 B", 1), ("MPI_Allreduce 10-100 B", 200),
    ]  # fmt: skip
    assert result["computation_unit"] == "cpu_ns"
    called("phases", "signature", str(trace))
    assert "MPI_Allreduce 10-100 B" in capsys.readouterr().out


def test_the_rest_of_a_run_is_predicted_from_its_first_part(tmp_path, capsys) -> None:
    # Noise of other seeds, one in fifteen, is taken for a trend.
    trace = write_trace(tmp_path / "trace", 200, seed=7)
    part = write_trace(tmp_path / "part", 50, seed=7)
    whole_s = printed(capsys, "signature", trace, "--json")["elapsed_s"]
    predicted = printed(capsys, "predict", part, "--fraction", "50/200", "--json")
    assert predicted == printed(capsys, "predict", part, "--fraction", 0.25, "--json")
    assert predicted["lower_s"] <= whole_s <= predicted["upper_s"]
    assert predicted["total_s"] == pytest.approx(whole_s, rel=0.02)
    checked = printed(capsys, "predict", trace, "--check", 0.25, "--json")
    assert checked["measured_s"] == pytest.approx(whole_s)
    assert checked["cycle"]["counted"] == "MPI_Allreduce 10-100 B"


def test_iterations_that_get_longer_have_no_interval(tmp_path, capsys) -> None:
    growing = write_trace(tmp_path / "growing", 60, growth=0.005)
    result = printed(capsys, "predict", growing, "--fraction", 0.2, "--json")
    assert (result["lower_s"], result["upper_s"]) == (result["elapsed_s"], None)
    assert result["trend"]["last_s"] > 1.1 * result["trend"]["first_s"]
    called("phases", "predict", str(growing), "--fraction", "0.2")
    text = capsys.readouterr().out
    assert "without an interval" in text
    assert "cycles get longer, from" in text


def test_a_short_run_tells_the_time_on_another_machine(trace, tmp_path, capsys) -> None:
    short = write_trace(tmp_path / "short", 20, slower=2.5, seed=9)
    result = printed(capsys, "transfer", trace, short, "--json")
    assert result["total_s"] == pytest.approx(2.5 * result["base_elapsed_s"], rel=0.02)
    assert called("phases", "transfer", str(trace), str(short)) == 0
    assert "2.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "TRACE"], "give --fraction or --check"),
        (["predict", "TRACE", "--fraction", "200/0"], "--fraction: must be a share"),
        (["predict", "TRACE", "--fraction", "1.5"], "must be between 0 and 1"),
        (["signature", "TRACE", "--tolerance", "-1"], "must be 0 or more"),
        (["signature", "missing"], "no such file or folder"),
        (["transfer", "TRACE", "OTHER"], "only 5% of its ticks communicate"),
    ],
)
def test_mistakes_are_told(trace, tmp_path, arguments, message) -> None:
    other = write_trace(tmp_path / "other", 20, iteration_bytes=10**6)
    paths = {"TRACE": str(trace), "OTHER": str(other)}
    with pytest.raises((ConfigError, RunError), match=message):
        called("phases", *(paths.get(argument, argument) for argument in arguments))


def test_a_rank_that_stopped_early_is_told_and_the_rest_is_used(trace, capsys) -> None:
    last = sorted(trace.iterdir())[-1]
    content = last.read_bytes()
    last.write_bytes(content[: len(content) * 3 // 4])
    assert called("phases", "signature", str(trace), "--json") == 0
    captured = capsys.readouterr()
    assert "rank 2: cut short or damaged" in captured.err
    result = json.loads(captured.out)
    assert result["missing"]
    assert math.isclose(result["total_s"], result["elapsed_s"])


def test_a_longer_run_is_the_base(trace, tmp_path) -> None:
    short = write_trace(tmp_path / "short", 20)
    with pytest.raises(RunError, match="the base is the longer run"):
        called("phases", "transfer", str(short), str(trace))
    with pytest.raises(TableError, match="voxcast phases show"):
        called("phases", "chain", trace)


PUBLISHED = Path(__file__).parents[2] / "data" / "pas2p_deepgalaxy.json"


@pytest.fixture
def values(tmp_path) -> Path:
    rows = json.loads(PUBLISHED.read_text(encoding="utf-8"))["ticks"]
    path = tmp_path / "simo.txt"
    path.write_text("".join(f"{row['simo']}\n" for row in rows) + "\n")
    return path


def test_the_phases_of_the_published_segment(values) -> None:
    words = ("phases", "signature", values, "--tolerance", 1, "--json")
    phases = voxcast(*words).json["phases"]
    assert [phase["founder"] for phase in phases] == [50, 47, 45, 54, 63, 52, 60]
    assert [phase["weight"] for phase in phases] == [11, 16, 4, 2, 2, 1, 1]
    assert phases[2]["ticks"] == [4, 11, 16, 28]
    assert sorted(tick for phase in phases for tick in phase["ticks"]) == list(range(37))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "must have one finite number a line"),
        (b"50\n\nfifty\n", "fifty"),
        (b"50\nnan\n", "must have one finite number a line"),
        (b"\xff\xfe", "must have one number a line"),
    ],
)
def test_a_file_without_values(content, words, tmp_path) -> None:
    (tmp_path / "simo.txt").write_bytes(content)
    line = refusal("phases", "signature", "simo.txt", cwd=tmp_path)
    assert line.startswith("simo.txt: ")
    assert words in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("none.txt",), "none.txt: no such file"),
        (("v.txt", "--tolerance", "-1"), "--tolerance: must be 0 or more, not -1"),
        (("v.txt", "--tolerance", "nan"), "--tolerance: must be 0 or more, not nan"),
        (("v.txt", "--min-share", "2"), "--min-share: must be 0 to 1, not 2"),
    ],
)
def test_a_mistake_in_the_options(options, line, tmp_path) -> None:
    assert refusal("phases", "signature", *options, cwd=tmp_path) == line


HISTORY = Path(__file__).parents[3] / "data/history/reference"
ARTIFACT = os.environ.get("VOXCAST_SLANT_ARTIFACT")


@pytest.mark.skipif(not ARTIFACT, reason="VOXCAST_SLANT_ARTIFACT is not set")
def test_the_published_runs_reproduce_the_published_gain(tmp_path: Path) -> None:
    voxcast("history", "import", "slant", ARTIFACT, "--into", tmp_path / "slant")
    report = voxcast("phases", "chain", tmp_path / "slant", "--json").json
    assert report["runs"] == 88
    held = [report["held_gb_h"][name] for name in ("at_run_peak", "at_phase_peaks", "used")]
    assert held == pytest.approx([99.7, 52.7, 32.0], abs=0.1)
    assert len(report["jobs"]) == 7
    assert 1.5 < report["gain"] < 2


def test_a_history_without_phases_says_so(tmp_path: Path) -> None:
    voxcast("history", "import", "sacct", SAMPLES / "imports/sacct.txt", "--into", tmp_path / "j")
    line = refusal("phases", "chain", tmp_path / "j", cwd=tmp_path)
    assert "has no phases, nor traces to read them from" in line


def test_a_damaged_part_is_one_line(tmp_path: Path) -> None:
    batch = tmp_path / "reference"
    shutil.copytree(HISTORY, batch)
    part = sorted(batch.glob("*/"))[0]
    (part / "runs.parquet").write_bytes(b"PAR1 damaged")
    answer = voxcast("phases", "chain", batch, "--app", "ants_segment")
    (line,) = (line for line in answer.err.splitlines() if str(part) in line)
    assert "cannot be read" in line
    assert line.endswith("left out")
    assert "ants_segment: 1" in answer.out


def test_phases_are_read_from_the_traces_where_no_run_logged_any(tmp_path: Path) -> None:
    part = tmp_path / "history" / "part"
    shutil.copytree(sorted(HISTORY.glob("*/"))[1], part)
    phases = pd.read_parquet(part / "phases.parquet")
    phases[:0].to_parquet(part / "phases.parquet")
    answer = voxcast("phases", "chain", part, "--app", "tile_segment", "--json")
    assert "no run logged phases: change points in the traces of" in answer.err
    assert answer.json["jobs"][0]["phase"] == "phase_1"
