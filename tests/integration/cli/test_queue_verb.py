"""``voxcast queue`` on the small trace made for tests."""

import json
from pathlib import Path

import pytest

from voxcast.allocation.workload import read_swf
from voxcast.cli import main

SMALL = Path(__file__).parents[2] / "samples" / "workloads" / "small.swf"
REPORT = {
    "jobs", "attempts", "killed", "killed_for_memory", "given_up", "mean_wait_s",
    "mean_turnaround_s", "mean_bounded_stretch", "utilisation", "useful_utilisation",
    "makespan_s", "asked_core_h", "held_core_h", "lost_core_h", "asked_gb_h", "held_gb_h",
}  # fmt: skip


@pytest.fixture
def queue(capsys):
    """Return a function that runs the verb and gives stdout and stderr."""

    def run(*arguments: object, status: int = 0) -> tuple[str, str]:
        assert main(["queue", *map(str, arguments)]) == status
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return captured.out, captured.err

    return run


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Ask for what each job takes, and a tenth more."""
    jobs = read_swf(SMALL)
    lines = [f"{n},{1.1 * t:.1f}" for n, t in zip(jobs.numbers, jobs.runtime_s, strict=True)]
    path = tmp_path / "requests.csv"
    path.write_text("\n".join(["job,requested_s", *lines]) + "\n")
    return path


def test_original_and_recommended_requests_are_replayed(queue, requests: Path) -> None:
    out, err = queue(SMALL, "--processors", 32, "--requests", requests, "--json")
    report = json.loads(out)
    assert set(report) == {
        "trace", "processors", "nodes", "node_memory_bytes", "backfill", "skipped", "bad",
        "replays",
    }  # fmt: skip
    assert (report["processors"], report["backfill"], report["skipped"], report["bad"]) == (
        32, True, 1, []
    )  # fmt: skip
    assert "jobs that never ran, excluded: 1" in err
    original, recommended = report["replays"]["given"], report["replays"]["recommended"]
    assert set(original) == set(recommended) == REPORT
    assert original["jobs"] == 200
    assert original["killed"] == recommended["killed"] == 0
    # So it is on this trace and on most; the work done is the same.
    assert recommended["mean_wait_s"] < original["mean_wait_s"]
    work = [replay["utilisation"] * replay["makespan_s"] for replay in (original, recommended)]
    assert work[0] == pytest.approx(work[1])


def test_the_size_of_the_machine_is_taken_from_the_trace(queue) -> None:
    assert queue(SMALL)[0] == queue(SMALL, "--processors", 32)[0]
    assert "requests as given: 200 jobs, mean wait" in queue(SMALL)[0]


def test_no_backfill_increases_the_wait(queue) -> None:
    waits = [
        json.loads(queue(SMALL, "--json", *more)[0])["replays"]["given"]["mean_wait_s"]
        for more in ((), ("--no-backfill",))
    ]
    assert waits[0] < waits[1]


def test_killed_jobs_are_reported(queue, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("\ufeffjob,requested_s\r\n1,1\r\n")  # as Excel writes it
    assert "killed at the requested time: 1;" in queue(SMALL, "--requests", tmp_path / "r.csv")[0]


def test_invalid_lines_are_reported_with_their_number_and_the_rest_is_replayed(
    queue, tmp_path: Path
) -> None:
    path = tmp_path / "t.swf"
    path.write_text(SMALL.read_text() + "nonsense\n" * 30)
    out, err = queue(path)
    assert "200 jobs" in out
    assert "line 207: has 1 fields instead of 18" in err
    assert "and 10 more lines" in err
    assert len(json.loads(queue(path, "--json")[0])["bad"]) == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone.swf",), "cannot be read"),
        ((SMALL, "--processors", "16"), "requests 32 processors where there are 16"),
        ((SMALL, "--processors", "0"), "at least 1"),
        ((SMALL, "--requests", "gone.csv"), "gone.csv: cannot be read"),
    ],
)
def test_invalid_arguments_are_refused(queue, arguments: tuple[object, ...], message: str) -> None:
    out, err = queue(*arguments, status=2)
    assert message in err.splitlines()[-1]
    assert out == ""


def test_a_trace_of_unknown_size_needs_the_processors(queue, tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_text(SMALL.read_text().replace("MaxProcs", "MaxJobs"))
    assert "give --processors" in queue(path, status=2)[1]


def test_the_queue_of_an_import_is_simulated(queue, tmp_path: Path, capsys) -> None:
    lines = ["JobID|JobName|State|ElapsedRaw|TimelimitRaw|AllocCPUS|Submit|Start|End"]
    for n in range(6):
        start = f"2024-05-01T10:{10 * (n // 2):02}:00"
        lines.append(f"{n + 7}|recon|COMPLETED|600|60|2|2024-05-01T10:00:0{n}|{start}|")
    lines.append("99|recon|COMPLETED|600||2|2024-05-01T10:00:00|2024-05-01T10:00:00|")
    (tmp_path / "jobs.txt").write_text("\n".join(lines) + "\n")
    history = tmp_path / "history"
    assert main(["import", "sacct", str(tmp_path / "jobs.txt"), "--into", str(history)]) == 0
    capsys.readouterr()
    (tmp_path / "r.csv").write_text("job,requested_s\n7,700\n")
    arguments = (history, "--processors", 4, "--requests", tmp_path / "r.csv", "--json")
    out, err = queue(*arguments)
    report = json.loads(out)
    # Two at a time, for ten minutes each: pairs wait 0, 10 and 20 minutes, but for seconds.
    assert report["replays"]["given"]["jobs"] == 6
    assert report["replays"]["given"]["mean_wait_s"] == pytest.approx(600, abs=5)
    assert "1 runs are excluded: without a time limit" in err
    (part,) = history.glob("*-sacct-1")
    assert queue(part, *arguments[1:])[0] == out.replace(str(history), str(part))
    assert "give --processors" in queue(history, status=2)[1]


def test_a_history_without_a_queue_is_refused(queue, capsys) -> None:
    reference = Path(__file__).parents[3] / "data" / "history" / "reference"
    message = queue(reference, "--processors", 4, status=2)[1].splitlines()[-1]
    assert f"{reference}: no run is a job of a queue" in message
    assert "without a time of submission" in message
