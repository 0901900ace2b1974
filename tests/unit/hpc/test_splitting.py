"""Cells that are too long for every worker run in parts, which join into one run."""

import dataclasses
import time

import pytest

from small_pool import FOLDS, make_old, pool_cell, run_worker, small_pool
from voxcast.hpc.escalation import Bounds, Ladder
from voxcast.hpc.healing import heal
from voxcast.hpc.remaining import Remaining
from voxcast.hpc.splitting import items, joined_run, parts_of, split_cell
from voxcast.hpc.worker_allocation import WorkerAllocation
from voxcast.records import Phase, Run
from voxcast.runs.series import load_records, read_record

BOUNDS = Bounds(max_walltime_s=1.0, max_failures=2)


def long_cell(**parameters):
    return pool_cell(app=FOLDS, ladder=Ladder((0.5,), (10**7,), 1), **parameters)


def test_a_cell_that_is_too_long_goes_in_parts_and_joins(tmp_path):
    pool = small_pool(tmp_path / "pool", long_cell(each_s=0.4), bounds=BOUNDS)  # 1.6 s and more
    (key,) = pool.cells()
    for _ in range(12):
        run_worker(pool, WorkerAllocation(1, 0, 10**9, time.monotonic() + 1.3))
        if pool.tokens.recorded() >= {key}:
            break
    assert pool.tokens.is_recorded(key)
    assert pool.tokens.waiting() == pool.tokens.given_up() == pool.tokens.split() == {}
    (row,) = load_records(pool.runs).to_dict("records")  # the parts are no runs of the history
    assert (row["outcome"], row["cell_key"]) == ("completed", pool.tokens.record_key(key))
    record = read_record(pool.runs / row["cell_key"])
    profile = record.run
    assert dataclasses.replace(record.cell, host_class="") == pool.cells()[key].cell
    parts = [read_record(pool.folder / "part_runs" / name).run for name in record.content["parts"]]
    assert profile.runtime_s == pytest.approx(sum(part.runtime_s for part in parts))
    assert profile.peak_rss_bytes == max(part.peak_rss_bytes or 0 for part in parts)
    folds = [int(p.read_text()) for p in (pool.runs / row["cell_key"]).rglob("folds.txt")]
    assert sum(folds) == 4


def test_parts_cover_all_items_once_and_may_be_split_again():
    whole = long_cell(folds=7)
    parts = parts_of(whole, FOLDS, 30.0, 10.0)
    assert [list(items(FOLDS, p.cell)) for p in parts] == [[0, 1], [2, 3, 4], [5, 6]]
    assert {part.part_of for part in parts} == {whole.key}
    halves = parts_of(parts[1], FOLDS, 10.0, 10.0)
    assert [list(items(FOLDS, p.cell)) for p in halves] == [[2, 3], [4]]
    assert parts_of(halves[1], FOLDS, 10.0, 10.0) == []
    assert parts_of(pool_cell(), FOLDS, 10.0, 10.0) == []


def test_a_split_that_was_cut_short_is_finished_once(tmp_path):
    pool = small_pool(tmp_path / "pool", long_cell(each_s=0.0), bounds=BOUNDS)
    (key,) = pool.cells()
    parts = parts_of(pool.cells()[key], FOLDS, 2.0, 1.0)
    dead = pool.tokens.claim(key, 0, "dead~1")
    before_aside = pool.tokens.take_over(dead, "dead~2")
    split_cell(pool, dead, 1, parts)  # its claim is lost: the parts are made, and not let go
    assert pool.tokens.waiting() == {}
    (pool.workers / "dead.json").write_text("{}")
    make_old(pool.workers / "dead.json")
    remaining = Remaining(pool, lambda _: True, lambda *_: "")
    remaining.look()
    heal(pool, remaining, lambda: "w~1")
    assert not pool.tokens.holds(before_aside)
    assert pool.tokens.waiting() == {part.key: 0 for part in parts}
    split_cell(pool, dead, 1, parts)  # repeated: no token comes into being again
    assert run_worker(pool).recorded == len(parts)
    assert pool.tokens.is_recorded(key)
    assert len(load_records(pool.runs)) == 1


def test_a_joined_run_sums_times_and_takes_the_largest_memory():
    def part(started, runtime_s, peak, **changes):
        run = Run(
            "", "app", runtime_s=runtime_s, cpu_s=runtime_s / 2, peak_rss_bytes=peak,
            started_at=started, **changes,
        )  # fmt: skip
        return run, (Phase("fit", 0.5, runtime_s),)

    joined, phases = joined_run([
        part("2026-01-02", 3.0, 5, io_read_bytes=1), part("2026-01-01", 2.0, 9, noisy=True),
    ])  # fmt: skip
    assert (joined.runtime_s, joined.cpu_s, joined.peak_rss_bytes) == (5.0, 2.5, 9)
    assert (joined.started_at, joined.noisy, joined.io_read_bytes) == ("2026-01-01", True, None)
    assert [(p.start_s, p.end_s) for p in phases] == [(0.5, 3.0), (3.5, 5.0)]
