"""One search by several workers: real processes on one journal file, some of them killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import planted
from voxcast.models.selection.cross_validation import Validation
from voxcast.studies.shared_search import MAX_ATTEMPTS, FamilyResult, SharedSearch

NAME, FAMILY, TRIALS = "tool/extra_trees", "extra_trees", 6
EXPIRES_S = 4.0
WORKER = f"""
import sys, time
from pathlib import Path
import planted
from voxcast.models.selection.cross_validation import Validation
from voxcast.studies.shared_search import SharedSearch
class Slow(Validation):
    def out_of_fold(self, *arguments):
        Path(sys.argv[2]).touch()
        time.sleep(float(sys.argv[3]))
        return super().out_of_fold(*arguments)
search = SharedSearch(Path(sys.argv[1]), {TRIALS}, 11, expires_s={EXPIRES_S})
search.work({{"{NAME}": ("{FAMILY}", Slow(planted.table(8), None, 4, 0))}}, Path(sys.argv[2]).name)
"""


@pytest.fixture
def validation() -> Validation:
    return Validation(planted.table(8), None, 4, 0)


def worker(folder: Path, name: str, sleep_s: float = 0.0) -> subprocess.Popen:
    paths = [str(Path(__file__).parents[2] / "support"), str(Path(__file__).parents[3] / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder / "search"), str(folder / name), str(sleep_s)],
        env=environment,
    )  # fmt: skip


def search_in(folder: Path) -> SharedSearch:
    search = SharedSearch(folder / "search", TRIALS, 11, expires_s=EXPIRES_S)
    search.add(NAME, FAMILY)
    return search


def alone(folder: Path, validation: Validation) -> FamilyResult:
    """Return the result of one worker in this process."""
    search = search_in(folder)
    assert search.work({NAME: (FAMILY, validation)}, "alone") == TRIALS
    return search.result(NAME, FAMILY)


def test_two_workers_choose_what_one_does(tmp_path: Path, validation: Validation) -> None:
    expected = alone(tmp_path / "one", validation)
    search = search_in(tmp_path)
    search.add(NAME, FAMILY)  # again: nothing is enqueued twice
    workers = [worker(tmp_path, name, 0.3) for name in ("a", "b")]
    assert [process.wait(120) for process in workers] == [0, 0]
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()
    result = search.result(NAME, FAMILY)
    assert result == expected
    assert (result.completed, result.given_up, result.finished) == (TRIALS, 0, True)


def test_the_trial_of_a_killed_worker_is_made_again(
    tmp_path: Path, validation: Validation
) -> None:
    expected = alone(tmp_path / "one", validation)
    search = search_in(tmp_path)
    killed = worker(tmp_path, "killed", 600.0)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert search.work({NAME: (FAMILY, validation)}, "second") == TRIALS
    result = search.result(NAME, FAMILY)
    assert result.lost == 1
    assert (result.params, result.objective) == (expected.params, expected.objective)


def test_a_trial_that_always_fails_is_given_up(tmp_path: Path, validation: Validation) -> None:
    class Failing(Validation):
        def out_of_fold(self, family, params, input_level):
            if params["min_samples_leaf"] == first["min_samples_leaf"]:
                raise ValueError("not with these leaves")
            return super().out_of_fold(family, params, input_level)

    first = alone(tmp_path / "one", validation).params
    search = search_in(tmp_path)
    failing = Failing(validation.table, None, 4, 0)
    search.work({NAME: (FAMILY, failing)}, "first")
    result = search.result(NAME, FAMILY)
    assert result.finished
    assert result.given_up >= 1
    assert result.lost == MAX_ATTEMPTS * result.given_up
    assert result.completed + result.given_up == TRIALS
    assert result.params["min_samples_leaf"] != first["min_samples_leaf"]
