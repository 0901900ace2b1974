"""Cells that are too long for every worker run in parts, which join into one run."""

from small_pool import FOLDS, pool_cell
from voxcast.jobs.campaign import items, joined_run, parts_of
from voxcast.jobs.task import RequestSequence
from voxcast.records import Phase, Run


def test_parts_cover_all_items_once_and_may_be_split_again():
    whole = pool_cell(app=FOLDS, requests=RequestSequence((0.5,), (10**7,), 1), folds=7)
    parts = parts_of(whole, FOLDS, 30.0, 10.0)
    assert [list(items(FOLDS, p.cell.parameters)) for p in parts] == [[0, 1], [2, 3, 4], [5, 6]]
    assert {part.part_of for part in parts} == {whole.name}
    halves = parts_of(parts[1], FOLDS, 10.0, 10.0)
    assert [list(items(FOLDS, p.cell.parameters)) for p in halves] == [[2, 3], [4]]
    assert parts_of(halves[1], FOLDS, 10.0, 10.0) == []
    assert parts_of(pool_cell(), FOLDS, 10.0, 10.0) == []


def test_a_joined_run_sums_times_and_takes_the_largest_memory():
    def part(started, runtime_s, peak, **changes):
        run = Run(
            "", "app", runtime_s=runtime_s, cpu_s=runtime_s / 2, peak_rss_bytes=peak,
            started_at=started, **changes,
        )  # fmt: skip
        return run, (Phase("learn", 0.5, runtime_s),)

    joined, phases = joined_run([
        part("2026-01-02", 3.0, 5, io_read_bytes=1), part("2026-01-01", 2.0, 9, noisy=True),
    ])  # fmt: skip
    assert (joined.runtime_s, joined.cpu_s, joined.peak_rss_bytes) == (5.0, 2.5, 9)
    assert (joined.started_at, joined.noisy, joined.io_read_bytes) == ("2026-01-01", True, None)
    assert [(p.start_s, p.end_s) for p in phases] == [(0.5, 3.0), (3.5, 5.0)]
