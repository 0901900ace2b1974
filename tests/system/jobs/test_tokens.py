"""Claims of many processes: every cell is taken by one of them."""

import json
import os

import pytest

from small_pool import ended, forked, pool_cell, small_pool
from voxcast.hpc.remaining import Remaining
from voxcast.hpc.tokens import Claim


def light_worker(pool, name, report):
    """Claim and count as done, without a run."""
    remaining = Remaining(pool, lambda _: True, lambda *_: "")
    keys, number = [], 0
    while remaining.look():
        while (taken := remaining.take(f"{name}~{(number := number + 1)}")) is not None:
            claim = taken[0]
            assert pool.tokens.commit(claim, claim.key)
            pool.tokens.finish(claim)
            keys.append(claim.key)
    report.write_text(json.dumps(keys))


@pytest.mark.parametrize(
    ("cells", "workers"), [(500, 16), pytest.param(10_000, 64, marks=pytest.mark.slow)]
)
def test_every_cell_is_claimed_by_one_worker(tmp_path, cells, workers):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(cells)))
    reports = [tmp_path / f"{n}.json" for n in range(workers)]
    processes = [
        forked(lambda n=n, r=report: light_worker(pool, f"w{n}", r))
        for n, report in enumerate(reports)
    ]
    assert {ended(process) for process in processes} == {0}
    claimed = [json.loads(report.read_text()) for report in reports]
    assert sorted(key for keys in claimed for key in keys) == sorted(pool.cells())
    assert pool.tokens.recorded() == pool.cells().keys()
    assert pool.tokens.claims() == pool.tokens.commits() == []
    assert sum(bool(keys) for keys in claimed) > 1


def test_a_stale_claim_is_taken_over_by_one_of_many(tmp_path):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(20)))
    (tmp_path / "won").mkdir()
    for key in pool.cells():
        dead = pool.tokens.claim(key, 0, "dead~1")
        gate, opener = os.pipe()

        def race(n, dead=dead, gate=gate, opener=opener):
            os.close(opener)
            os.read(gate, 1)  # until the gate is closed: all at once
            if pool.tokens.take_over(dead, f"w{n}~1"):
                (tmp_path / "won" / f"{dead.key}-{n}").touch()

        racers = [forked(lambda n=n: race(n)) for n in range(4)]
        os.close(opener)
        os.close(gate)
        assert {ended(racer) for racer in racers} == {0}
        assert not pool.tokens.holds(dead)
        assert not pool.tokens.commit(dead, "0")
        assert not pool.tokens.give_back(dead)
    winners = [path.name.partition("-")[0] for path in (tmp_path / "won").iterdir()]
    assert sorted(winners) == sorted(pool.cells())
    assert sorted(claim.key for claim in pool.tokens.claims()) == sorted(pool.cells())


def test_a_lost_answer_of_a_rename_is_no_refusal(tmp_path):
    """NFS repeats the request: the token is at the target already, and not at its source."""
    pool = small_pool(tmp_path / "pool", pool_cell())
    (key,) = pool.cells()
    claim = pool.tokens.claim(key, 0, "w~1")
    assert pool.tokens.claim(key, 0, "w~1") == claim
    assert pool.tokens.claim(key, 0, "w~2") is None


def test_the_name_of_a_claim_tells_all_of_it():
    claim = Claim("ab", 3, "2026-01-01-00aa11bb-7~12")
    assert Claim.from_name(claim.name) == claim
    assert claim.worker == "2026-01-01-00aa11bb-7"
