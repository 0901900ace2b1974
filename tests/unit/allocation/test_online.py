"""Requests learned online: near what a task needs, cheapest under planted laws, kept in a file."""

import itertools
import json
import math

import numpy as np
import pytest

from voxcast.allocation.requests import online
from voxcast.allocation.requests.online import OnlineSizer
from voxcast.errors import ConfigError, TableError
from voxcast.records import Request

GB = 10**9


def learned(rows, **options):
    sizer = OnlineSizer(**options)
    for size, memory, time_s in rows:
        sizer.update("align", {"size": size}, peak_rss_bytes=memory, runtime_s=time_s)
    return sizer


def memory_of(requests):
    return [request.memory_bytes for request in requests]


def test_a_task_that_always_needs_the_same_is_given_hardly_more():
    sizer = learned([(n, 4 * GB, 600.0) for n in range(20)])
    first = sizer.requests("align", {"size": 7.0})[0]
    assert 4 * GB <= first.memory_bytes < 4.02 * GB
    assert first.walltime_s == math.inf


def test_memory_that_grows_with_the_input_is_requested_for_larger_inputs():
    random = np.random.default_rng(0)
    sizes = random.uniform(1, 10, 60)
    sizer = learned([(s, s * GB * random.uniform(0.97, 1.03), 100.0) for s in sizes])
    for size in (2.0, 9.0, 20.0):
        first = sizer.requests("align", {"size": size})[0].memory_bytes / GB
        assert 0.97 * size < first < 1.2 * size


@pytest.mark.parametrize("before", [50, 200])
def test_a_task_that_changes_is_known_anew_after_few_runs(before):
    random = np.random.default_rng(0)
    memory = [*4 * GB * random.lognormal(0, 0.05, before), *9 * GB * random.lognormal(0, 0.05, 40)]
    sizer, failed = OnlineSizer(), []
    for needed in memory:
        failed.append(sizer.requests("align", {}, 8 * GB)[0].memory_bytes < needed)
        sizer.update("align", {}, peak_rss_bytes=needed, runtime_s=600.0)
    assert sum(failed[-15:]) <= 3  # by the runs of all time it would be all of them
    assert sizer.requests("align", {})[0].memory_bytes > 8 * GB


def test_a_question_without_the_features_of_its_task_is_answered_from_all_runs():
    random = np.random.default_rng(0)
    sizer = learned([(s, s * GB, 100.0) for s in random.uniform(1, 10, 40)])
    assert sizer._tasks["align"].waste["line"] < sizer._tasks["align"].waste["constant"]
    assert memory_of(sizer.requests("align", {}))[-1] > 9 * GB


def test_a_rare_large_run_is_met_by_a_second_request():
    rows = [(1.0, 20 * GB if n % 20 == 19 else GB, 100.0) for n in range(100)]
    requests = memory_of(learned(rows).requests("align", {"size": 1.0}))
    assert requests[0] < 1.1 * GB
    assert any(20 * GB <= memory < 21 * GB for memory in requests)


def test_requests_increase_whatever_was_learned():
    random = np.random.default_rng(1)
    for objective in online.OBJECTIVES:
        rows = zip(*random.lognormal(20, 1, (2, 30)), random.lognormal(5, 1, 30), strict=True)
        requests = learned(rows, objective=objective).requests("align", {"size": 1e8})
        for earlier, later in itertools.pairwise(requests):
            assert later.memory_bytes >= earlier.memory_bytes
            assert later.walltime_s >= earlier.walltime_s
            assert later != earlier


def test_memory_and_time_together_are_the_best_of_all_sequences_on_the_grid(monkeypatch):
    monkeypatch.setattr(online, "GRID_POINTS", 3)
    random = np.random.default_rng(2)
    law = online._Law(
        random.lognormal(0, 1, 12), random.lognormal(0, 1, 12), random.uniform(0.1, 1, 12)
    )
    sizer = OnlineSizer(objective="both")

    def waste(rungs):
        return sum(
            weight * sizer._wasted(rungs, memory, time_s)
            for memory, time_s, weight in zip(law.memory, law.time_s, law.weight, strict=True)
        )

    levels = np.linspace(0, 1, 3) ** 0.5
    grid = itertools.product(np.quantile(law.memory, levels), np.quantile(law.time_s, levels))
    rungs = sorted(grid)
    chains = (
        chain
        for count in range(1, len(rungs) + 1)
        for chain in itertools.combinations(rungs, count)
        if chain[-1] == rungs[-1] and all(a[1] <= b[1] for a, b in itertools.pairwise(chain))
    )
    assert waste(online._cheapest_rungs(law)) == pytest.approx(min(map(waste, chains)))


def test_killed_runs_are_lower_bounds_until_the_run_completes():
    rows = [(float(n), GB, 60.0) for n in range(10)]
    sizer = learned(rows)
    before = memory_of(sizer.requests("align", {"size": 3.0}))
    for n in range(10):
        sizer.update(
            "align", {"size": 100.0 + n}, peak_rss_bytes=2.1 * GB, runtime_s=60.0,
            outcome="out_of_memory",
        )  # fmt: skip
    killed = memory_of(sizer.requests("align", {"size": 3.0}))
    assert before[0] < 1.1 * GB
    assert any(memory > 2.1 * GB for memory in killed)
    for n in range(10):
        sizer.update("align", {"size": 100.0 + n}, peak_rss_bytes=GB, runtime_s=60.0)
    assert memory_of(sizer.requests("align", {"size": 3.0}))[0] < 1.1 * GB
    sizer.update("align", {}, peak_rss_bytes=9 * GB, runtime_s=1.0, outcome="failed")
    assert memory_of(sizer.requests("align", {"size": 3.0}))[0] < 1.1 * GB


def test_a_new_task_gets_its_preset_or_what_similar_tasks_need():
    sizer = OnlineSizer()
    assert memory_of(sizer.requests("A:SORT", {})) == [4 * GB]
    assert sizer.requests("A:SORT", {}, 7 * GB) == [Request(math.inf, 7 * GB)]
    assert sizer.requests("A:SORT", {}, Request(60.0, 7 * GB)) == [Request(60.0, 7 * GB)]
    for _ in range(5):
        sizer.update("A:SORT", {}, peak_rss_bytes=2 * GB, runtime_s=60.0)
        sizer.update("A:INDEX", {}, peak_rss_bytes=50 * GB, runtime_s=60.0)
    assert 2 * GB <= memory_of(sizer.requests("B:SORT", {}))[0] < 2.5 * GB


def test_runs_are_kept_in_a_file_that_the_next_process_continues(tmp_path):
    path = tmp_path / "sizes.jsonl"
    random = np.random.default_rng(3)
    rows = [(s, s * GB, 60.0) for s in random.uniform(1, 5, 12)]
    sizer = learned(rows, path=path)
    again = OnlineSizer(path)
    assert again.requests("align", {"size": 4.0}) == sizer.requests("align", {"size": 4.0})


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path, caplog):
    path = tmp_path / "sizes.jsonl"
    learned([(1.0, GB, 60.0)], path=path)
    with path.open("a", encoding="utf-8") as file:
        file.write('\n{"task": "align", "feat')
    OnlineSizer(path).update("align", {"size": 1.0}, peak_rss_bytes=GB, runtime_s=60.0)
    assert OnlineSizer(path).requests("align", {}) == learned([(1.0, GB, 60.0)] * 2).requests(
        "align", {}
    )
    assert "ignored 1 line that could not be read" in caplog.text


@pytest.mark.parametrize("content", ["", "{}", "null", "[]", "PNG\n"])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "sizes.jsonl"
    path.write_text(content)
    with pytest.raises(TableError, match="is not a file of an OnlineSizer"):
        OnlineSizer(path)


def test_bad_objectives_and_amounts_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="choose memory, time, both"):
        OnlineSizer(objective="speed")
    path = tmp_path / "sizes.jsonl"
    OnlineSizer(path)
    assert json.loads(path.read_text()) == {"format": 1, "objective": "memory"}
    with pytest.raises(ConfigError, match="is of the objective memory"):
        OnlineSizer(path, objective="time")
    for amount in (math.nan, math.inf, -1.0):
        with pytest.raises(ConfigError, match="must be a finite number"):
            OnlineSizer().update("align", {}, peak_rss_bytes=amount, runtime_s=1.0)
