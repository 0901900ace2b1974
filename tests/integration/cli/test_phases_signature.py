"""``voxcast phases signature``, ``predict`` and ``transfer``."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from commands import called
from voxcast.errors import ConfigError, RunError, TableError
from voxcast.phases.events import Kind

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
