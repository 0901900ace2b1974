"""The traces made for the queue replay, and the rules that ask for their jobs."""

from pathlib import Path

import numpy as np
import pytest

import worth_replay
from voxcast.allocation.workload import read_swf
from worth_replay import LARGEST_FACTOR, MACHINE, residual_spread
from worth_trace import MadeTrace, made_trace, write_swf

RESULTS = Path(__file__).parents[3] / "results" / "worth"


@pytest.fixture(scope="module")
def trace() -> MadeTrace:
    """Return a trace of a thousand jobs."""
    return made_trace(1000, MACHINE, 0.5, 1, 0.1)


def test_a_trace_is_of_a_machine_and_reads_as_it_was_written(
    trace: MadeTrace, tmp_path: Path
) -> None:
    jobs = trace.workload
    assert (np.diff(jobs.submit_s) >= 0).all()
    assert (jobs.runtime_s <= jobs.requested_s).all()
    assert (jobs.used_memory() <= jobs.packed_bytes()).all()
    assert (jobs.packed_bytes() * jobs.processors <= MACHINE.memory_bytes * 1.000001).all()
    write_swf(jobs, tmp_path / "made.swf", "for a test")
    again = read_swf(tmp_path / "made.swf")
    assert again.max_processors == MACHINE.processors
    assert again.bad == again.skipped == ()
    for name in ("submit_s", "runtime_s", "requested_s", "processors"):
        assert (getattr(again, name) == getattr(jobs, name)).all(), name
    assert again.packed_bytes() == pytest.approx(jobs.packed_bytes())
    assert again.used_memory() == pytest.approx(jobs.used_memory())


def test_a_rule_sees_what_had_ended_before(trace: MadeTrace) -> None:
    jobs = trace.workload
    asked_s, asked_bytes = worth_replay._by_rule(trace, "largest")
    last_s, _ = worth_replay._by_rule(trace, "last_five")
    ended_s = jobs.submit_s + jobs.runtime_s
    for n in range(0, len(jobs), 37):
        before = (trace.application == trace.application[n]) & (ended_s <= jobs.submit_s[n])
        if not before.any():
            assert (asked_s[n], last_s[n]) == (jobs.requested_s[n],) * 2
            continue
        assert asked_s[n] == pytest.approx(LARGEST_FACTOR * jobs.runtime_s[before].max())
        largest = jobs.used_memory()[before].max()
        assert asked_bytes[n] == pytest.approx(LARGEST_FACTOR * largest)
        latest = jobs.runtime_s[before][np.argsort(ended_s[before], kind="stable")][-5:]
        assert last_s[n] == pytest.approx(latest.mean())


def test_predictions_are_exceeded_as_often_as_they_say(trace: MadeTrace) -> None:
    jobs = trace.workload
    time_s, memory = worth_replay.requests(trace, "predicted", 0.1, 1e9)
    assert 0.02 < (jobs.runtime_s > time_s).mean() < 0.08
    assert (jobs.used_memory() > memory).mean() < 0.01
    assert residual_spread(RESULTS / "jobs.json")["runtime_s"] > 0
