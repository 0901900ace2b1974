"""Advice on accounting with several nodes, numbers of CPUs, and jobs killed at their limit."""

from pathlib import Path

import numpy as np
import pandas as pd

from voxcast.audit.jobs import read_jobs
from voxcast.audit.report import audit, prepare
from voxcast.audit.text import advice_text

HEAD = (
    "JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|Timelimit|AllocCPUS|NNodes|ReqMem|MaxRSS"
)


def advice_on(tmp_path: Path, rows: list[dict[str, object]]):
    """Return the advice of the only application; a row is of a job, one an hour."""
    lines = [HEAD]
    for n, row in enumerate(rows):
        start = pd.Timestamp("2026-01-01") + pd.Timedelta(hours=n)
        elapsed = int(row["minutes"] * 60)
        end = start + pd.Timedelta(seconds=elapsed)
        state, cpus, nodes = row.get("state", "COMPLETED"), row.get("cpus", 1), row.get("nodes", 1)
        times = "|".join(t.isoformat() for t in (start, start, end))
        lines.append(
            f"{n}|seg|ann|{state}|{times}|{elapsed}|{row.get('limit', '10:00:00')}|{cpus}|{nodes}"
            f"|8000M|{row.get('rss', 1000)}M"
        )
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join(lines) + "\n")
    jobs = read_jobs([path])
    prepare(jobs)
    (savings,) = audit(jobs).savings
    return savings


def times(count: int, median: float = 60.0) -> list[float]:
    return (median * np.exp(np.random.default_rng(1).normal(0, 0.2, count))).tolist()


def test_jobs_on_several_nodes_get_no_advice(tmp_path: Path) -> None:
    one = [{"minutes": minutes, "cpus": 8} for minutes in times(100)]
    several = [{"minutes": minutes, "cpus": 8, "nodes": 4} for minutes in times(60)]
    savings = advice_on(tmp_path, one + several)
    (advice,) = savings.advice
    assert (advice.cpus, advice.jobs) == (8, 100)
    assert savings.not_covered == 60


def test_kills_are_counted_where_earlier_jobs_had_as_many_cpus(tmp_path: Path) -> None:
    short = [{"minutes": minutes} for minutes in times(300, 10)]
    long = [{"minutes": minutes, "cpus": 4} for minutes in times(60, 120)]
    by_cpus = {advice.cpus: advice for advice in advice_on(tmp_path, short + long).advice}
    few = by_cpus[4]
    assert 0 < few.time.judged_jobs < 60  # the first were judged by requests of one CPU
    assert few.time.killed < 0.2 * few.time.judged_jobs


def test_jobs_killed_at_their_limit_make_the_advice_too_little(tmp_path: Path) -> None:
    rows = [
        {"minutes": min(minutes, 60), "limit": "01:00:00",
         "state": "TIMEOUT" if minutes >= 60 else "COMPLETED"}
        for minutes in times(200)
    ]  # fmt: skip
    (advice,) = advice_on(tmp_path, rows).advice
    assert advice.time.stopped == sum(row["state"] == "TIMEOUT" for row in rows) > 50
    text = advice_text(advice)
    assert f"{advice.time.stopped} of the jobs were killed at their limit of time" in text
    assert "limit of memory" not in text
