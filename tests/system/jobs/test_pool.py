"""Pools that cannot be worked on: one clear line, and nothing is lost."""

import dataclasses
import json
import multiprocessing

import pytest

from small_disk import mounted, remount
from small_pool import (
    NAPS,
    add,
    ended,
    forked,
    pool_cell,
    run_worker,
    small_pool,
    work_once,
)  # fmt: skip
from voxcast.errors import ConfigError, RunError
from voxcast.jobs.submission import Submission
from voxcast.jobs.task import Task
from voxcast.jobs.worker import HELD, TODO, key_of


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"), ("[]", "not a JSON object"), ("{}", "version None, not 4"),
        ('{"voxcast_plan": 99, "voxcast_version": "9.0"}', "99, not 4.*made by voxcast 9.0"),
        ('{"voxcast_plan": 4}', "app is missing"),
    ],
)  # fmt: skip
def test_a_damaged_pool_or_one_of_another_release_says_so(tmp_path, content, problem):
    pool = small_pool(tmp_path / "pool")
    (pool.folder / "submission.json").write_text(content)
    for call in (lambda: pool.submission, lambda: small_pool(pool.folder)):
        with pytest.raises(ConfigError, match=problem):
            call()


def test_a_follower_that_was_killed_while_adding_has_made_no_cell_twice(tmp_path):
    pool = small_pool(tmp_path / "pool")
    plan = dataclasses.replace(pool.submission.plan, tasks=(pool_cell(1),))
    Submission.of_workers(pool.folder, plan)  # killed before its ticket was made
    add(pool)
    assert run_worker(pool).recorded == 1
    assert add(pool, pool_cell(1)) == 0
    assert run_worker(pool).recorded == 0


def test_a_ticket_that_a_crash_left_empty_is_made_again(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell())
    (name,) = pool.names(TODO)
    pool.place(TODO, name).write_text("")
    assert run_worker(pool).recorded == 1


@pytest.mark.parametrize(
    ("cells", "workers"), [(500, 16), pytest.param(10_000, 64, marks=pytest.mark.slow)]
)
def test_every_ticket_is_drawn_by_one_worker(tmp_path, cells, workers):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(cells)))
    reports = [tmp_path / f"{n}.json" for n in range(workers)]
    each_holds_one = multiprocessing.get_context("fork").Barrier(workers)

    def draw(number):
        names = sorted(pool.names(TODO))
        start = number * len(names) // workers // 4  # all want the same ones, in about one order
        drawn = []
        for name in names[start:] + names[:start]:
            if pool.draw(name, f"w{number}~~1"):
                drawn.append(name)
                if len(drawn) == 1:
                    each_holds_one.wait(60)
        reports[number].write_text(json.dumps(drawn))

    processes = [forked(lambda n=n: draw(n)) for n in range(workers)]
    assert {ended(process) for process in processes} == {0}
    drawn = [json.loads(report.read_text()) for report in reports]
    tickets = sorted(name for names in drawn for name in names)
    assert tickets == sorted(set(tickets))
    assert sorted(map(key_of, tickets)) == sorted(pool.state.tasks)
    assert len(pool.names(HELD)) == cells
    assert all(drawn)


def test_a_lost_answer_of_a_rename_is_no_refusal(tmp_path):
    """NFS repeats the request: the ticket is at the target already, and not at its source."""
    pool = small_pool(tmp_path / "pool", pool_cell())
    (name,) = pool.names(TODO)
    assert pool.draw(name, "w~~1") == pool.draw(name, "w~~1") == f"{name}~w~~1"
    assert pool.draw(name, "w~~2") == ""


def of_volume(name):
    cell = dataclasses.replace(pool_cell().cell, volume_id=name, app="reads")
    return Task.of_cell(cell, pool_cell().requests, 0.1)


def volume_pool(tmp_path, names):
    app = dataclasses.replace(NAPS, name="reads", argv=("cat", "{image}"), input="volume")
    paths = {n: str(tmp_path / f"{n}.nii") for n in names}
    return small_pool(
        tmp_path / "pool", *map(of_volume, names), apps={"reads": app}, paths=paths
    )  # fmt: skip


def test_a_missing_volume_is_left_out_and_missing_folders_end_the_worker(tmp_path, caplog):
    pool = volume_pool(tmp_path, "abcdefg")
    with pytest.raises(RunError, match=r"\.nii: no such volume"):
        run_worker(pool)
    assert len(pool.names(TODO)) == 7
    for name in "abcdef":
        (tmp_path / f"{name}.nii").write_text("x")
    summary = work_once(pool)
    assert (summary.recorded, summary.left, summary.lacking) == (6, 1, {"its volume": 1})
    assert "g.nii: no such volume" in caplog.text


def test_another_version_of_an_application_is_not_run(tmp_path):
    other = dataclasses.replace(pool_cell().cell, app_version="2")
    pool = small_pool(tmp_path / "pool", Task.of_cell(other, pool_cell().requests, 0.1))
    with pytest.raises(RunError, match="naps: is version 1 here; install 2 here"):
        run_worker(pool)
    assert len(pool.names(TODO)) == 1


def test_a_read_only_folder_is_one_line(tmp_path):
    with mounted(tmp_path / "disk") as disk:
        pool = small_pool(disk / "pool", pool_cell())
        remount(disk, "ro")
        with pytest.raises(RunError, match="cannot be written to; a worker needs to write there"):
            run_worker(pool)
        remount(disk, "rw")
        assert run_worker(pool).recorded == 1
