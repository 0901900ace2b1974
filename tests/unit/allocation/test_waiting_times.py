"""Waiting times: planted laws come back out, whatever a week of maintenance did to one group."""

from pathlib import Path

import numpy as np
import pytest

from voxcast.allocation.site import Waiting, fit_waiting
from voxcast.errors import TableError
from voxcast.runs.slurm import waits

INTREPID = Waiting(0.95, 3771.84)  # 409 processors, Aupy et al., IPDPS 2019
HEADER = "JobID|Partition|Submit|Eligible|Start|Timelimit|NCPUS"


def planted(law: Waiting, jobs: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    requested_s = rng.uniform(0.2, 24, jobs) * 3600
    return requested_s, law.of(requested_s) * rng.gamma(4.0, 0.25, jobs)


def test_a_planted_law_is_recovered() -> None:
    waiting, count = fit_waiting(*planted(INTREPID))
    assert waiting.alpha == pytest.approx(0.95, rel=0.05)
    assert waiting.gamma_s == pytest.approx(3771.84, rel=0.25)
    assert count == 4000
    exact = np.linspace(600, 90_000, 400)
    waiting, _ = fit_waiting(exact, INTREPID.of(exact))
    assert (waiting.alpha, waiting.gamma_s) == pytest.approx((0.95, 3771.84))


def test_an_outage_does_not_bend_the_line() -> None:
    requested_s, waited = planted(INTREPID)
    order = np.argsort(requested_s)
    waited[order[:150]] += 7 * 86400
    waited[order[-30:]] += 30 * 86400
    waiting, _ = fit_waiting(requested_s, waited)
    assert waiting.alpha == pytest.approx(0.95, rel=0.15)


def test_longer_requests_never_wait_less() -> None:
    requested_s = np.linspace(600, 90_000, 400)
    waiting, _ = fit_waiting(requested_s, 9000 - 0.05 * requested_s)
    assert waiting.alpha == 0
    assert waiting.gamma_s == pytest.approx(9000 - 0.05 * requested_s.mean(), rel=0.01)
    # 204 processors of the paper: a negative constant is possible, a negative wait is not.
    assert Waiting(1.16, -1290.38).of([100.0, 3600.0]).tolist() == pytest.approx([0.0, 2885.62])


def test_too_few_jobs_are_refused() -> None:
    requested_s, waited = planted(INTREPID, 99)
    with pytest.raises(TableError, match="99 jobs are too few; 100 are needed"):
        fit_waiting(requested_s, waited)
    with pytest.raises(TableError, match="requested the same time"):
        fit_waiting(np.full(500, 3600.0), np.arange(500.0))


def sacct(path: Path, lines: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_accounting_is_read(tmp_path: Path) -> None:
    day = "2024-05-01T"
    jobs = waits(
        sacct(
            tmp_path / "jobs.txt",
            [
                f"1|long|{day}10:00:00|{day}10:00:00|{day}10:30:00|02:00:00|4",
                f"1.batch||{day}10:00:00|{day}10:00:00|{day}10:30:00||4",
                f"2|long|{day}10:00:00|{day}11:00:00|{day}11:00:30|1-00:00:00|64",
                f"3|short|{day}10:00:00|Unknown|{day}10:00:05|00:10:00|1",
                f"4|short|{day}10:00:00|{day}10:00:00|Unknown|00:10:00|1",
                f"5|short|{day}10:00:00|{day}10:00:00|{day}10:00:01|UNLIMITED|1",
                f"7|short|{day}10:00:00|{day}10:00:00|{day}10:00:01|00:10:00|{10**12}",
                f"8|short|{day}10:00:00|{day}10:00:00|{day}10:00:01|00:10:00|-1",
                f"6|short|{day}10:00:00|{day}10:00:00|{day}10:00:01|00:10:00|1",
            ],
        )
    )
    assert jobs["waited_s"].tolist() == [1800, 30, 1]
    assert jobs["requested_s"].tolist() == [7200, 86400, 600]
    assert jobs["cpus"].tolist() == [4, 64, 1]
    assert jobs["partition"].tolist() == ["long", "long", "short"]


def test_accounting_without_jobs_is_refused(tmp_path: Path) -> None:
    for text, message in (
        ("Submit|Start\n", "Timelimit"),
        (f"{HEADER}\n", "no job with a queueing time"),
    ):
        (tmp_path / "x.txt").write_text(text)
        with pytest.raises(TableError, match=message):
            waits(tmp_path / "x.txt")
    with pytest.raises(TableError, match="cannot be read"):
        waits(tmp_path / "gone.txt")
