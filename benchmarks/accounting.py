"""Exports of ``sacct`` whose truth is known: who ran what, what it needed and requested."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 60
LINES_PER_JOB = 3  # the job, its batch step and Slurm's own
GIB = 2**30
COLUMNS = (
    "JobID|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw|TotalCPU|"
    "MaxRSS|ReqMem|ReqCPUS|AllocCPUS|AllocTRES|TimelimitRaw|NTasks|NodeList"
)
# What a site that keeps few columns exports.
FEW_COLUMNS = "JobID|User|State|Elapsed|NCPUS|ReqMem|MaxRSS"


@dataclass(frozen=True)
class Application:
    """An application: what its jobs need, by lognormal laws, and what its users ask for."""

    name: str
    median_s: float
    spread: float  # standard deviation of the logarithm of run time
    memory_bytes: float
    memory_spread: float
    cpus: int
    gpus: int
    efficiency: float  # CPU time over run time times CPUs
    limit_s: float
    request_bytes: float
    partition: str = "normal"
    failing: float = 0.02  # share of jobs that fail by themselves


APPLICATIONS = (
    Application("recon_all", 25_000, 0.25, 4 * GIB, 0.15, 1, 0, 0.97, 172_800, 16 * GIB),
    Application("fmriprep", 14_000, 0.35, 9 * GIB, 0.25, 8, 0, 0.55, 86_400, 32 * GIB),
    Application("bet", 90, 0.3, 0.4 * GIB, 0.1, 1, 0, 0.9, 3600, 4 * GIB),
    Application("train", 30_000, 0.6, 12 * GIB, 0.3, 4, 1, 0.6, 86_400, 24 * GIB, "gpu", 0.1),
    Application("xcpd", 1800, 0.4, 3 * GIB, 0.5, 4, 0, 0.7, 2400, 4 * GIB),
    Application("quick", 20, 0.5, 0.1 * GIB, 0.2, 1, 0, 0.5, 600, 2 * GIB),
)
USERS = tuple(f"user{n:02}" for n in range(40))


def truth(n_jobs: int, seed: int = 0) -> pd.DataFrame:
    """Return jobs with what they needed, asked for and used, and what became of them.

    Users differ in what they ask for: those with an odd number ask for twice as much memory.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([0.2, 0.2, 0.25, 0.05, 0.2, 0.1])
    app = rng.choice(len(APPLICATIONS), n_jobs, p=shares)
    user = rng.integers(len(USERS), size=n_jobs)

    def of_app(field: str) -> np.ndarray:
        return np.array([getattr(a, field) for a in APPLICATIONS])[app]

    needed_s = of_app("median_s") * np.exp(of_app("spread") * rng.standard_normal(n_jobs))
    memory_noise = np.exp(of_app("memory_spread") * rng.standard_normal(n_jobs))
    needed_bytes = of_app("memory_bytes") * memory_noise
    limit_s = of_app("limit_s").astype(float)
    request = of_app("request_bytes") * np.where(user % 2, 2.0, 1.0)
    fate = rng.random(n_jobs)
    never, cancelled = fate < 0.01, (fate >= 0.01) & (fate < 0.03)
    failed = (fate >= 0.03) & (fate < 0.03 + of_app("failing"))
    short, small = needed_s > limit_s, needed_bytes > request
    outcome = np.select(
        [never, cancelled, failed, small, short],
        ["never", "cancelled", "failed", "out_of_memory", "timeout"], "completed",
    )  # fmt: skip
    cut = rng.uniform(0.1, 0.9, n_jobs)
    runtime = np.select(
        [outcome == "never", outcome == "timeout", outcome != "completed"],
        [0.0, limit_s, cut * np.minimum(needed_s, limit_s)], needed_s,
    )  # fmt: skip
    runtime = np.where(outcome == "never", 0.0, np.maximum(np.round(runtime), 1.0))
    submit_s = np.sort(rng.integers(0, DAYS * 86_400, n_jobs)).astype(float)
    wait_s = np.round(rng.exponential(1800, n_jobs))
    return pd.DataFrame(
        {
            "job_id": 1000 + np.arange(n_jobs),
            "app": of_app("name"),
            "user": np.array(USERS)[user],
            "account": np.char.add("lab", (user % 7).astype(str)),
            "partition": of_app("partition"),
            "outcome": outcome,
            "submit_s": submit_s,
            "start_s": submit_s + wait_s,
            "runtime_s": runtime,
            "cpus": of_app("cpus"),
            "gpus": of_app("gpus"),
            "cpu_s": np.round(runtime * of_app("cpus") * of_app("efficiency"), 3),
            "limit_s": limit_s,
            "request_bytes": request,
            "peak_bytes": np.round(np.minimum(needed_bytes, request) / 1024) * 1024,
            "needed_s": needed_s,
            "needed_bytes": needed_bytes,
        }
    )


_STATES = {
    "completed": ("COMPLETED", "0:0"), "timeout": ("TIMEOUT", "0:0"), "failed": ("FAILED", "1:0"),
    "out_of_memory": ("OUT_OF_MEMORY", "0:125"), "cancelled": ("CANCELLED by 1001", "0:0"),
    "never": ("CANCELLED by 1001", "0:0"),
}  # fmt: skip


def lines(jobs: pd.DataFrame, *, steps: bool = True, columns: str = COLUMNS) -> Iterator[str]:
    """Yield the lines of ``sacct -P`` for jobs of `truth`, without line breaks."""
    names = columns.split("|")
    yield columns
    job: Any
    for job in jobs.itertuples():
        state, exit_code = _STATES[job.outcome]
        start = START + timedelta(seconds=job.start_s)
        ran = job.outcome != "never"
        end = (start + timedelta(seconds=job.runtime_s)).strftime("%Y-%m-%dT%H:%M:%S")
        memory = f"{job.request_bytes / GIB:.10g}G"
        gpu = f"gres/gpu={job.gpus}," if job.gpus else ""
        cells = {
            "JobID": f"{job.job_id}",
            "JobName": f"{job.app}_sub-{job.job_id % 997:04}",
            "User": job.user, "Account": job.account, "Partition": job.partition,
            "State": state, "ExitCode": exit_code,
            "Submit": (START + timedelta(seconds=job.submit_s)).strftime("%Y-%m-%dT%H:%M:%S"),
            "Start": start.strftime("%Y-%m-%dT%H:%M:%S") if ran else "None",
            "End": end,
            "ElapsedRaw": f"{job.runtime_s:.0f}", "Elapsed": _clock(job.runtime_s, 0),
            "TotalCPU": _clock(job.cpu_s, 3), "ReqMem": memory,
            "ReqCPUS": f"{job.cpus}", "AllocCPUS": f"{job.cpus if ran else 0}",
            "NCPUS": f"{job.cpus if ran else 0}",
            "AllocTRES": f"billing={job.cpus},cpu={job.cpus},{gpu}mem={memory},node=1"
            if ran else "",
            "TimelimitRaw": f"{job.limit_s / 60:.0f}",
            "NodeList": f"n{job.job_id % 90}" if ran else "None assigned",
            "MaxRSS": "", "NTasks": "",
        }  # fmt: skip
        yield "|".join(cells[name] for name in names)
        if ran and steps:
            batch = cells | {
                "JobID": f"{job.job_id}.batch", "JobName": "batch", "User": "", "Partition": "",
                "MaxRSS": f"{job.peak_bytes / 1024:.0f}K", "NTasks": "1", "ReqMem": "",
                "TimelimitRaw": "",
            }  # fmt: skip
            yield "|".join(batch[name] for name in names)
            extern = batch | {"JobID": f"{job.job_id}.extern", "JobName": "extern", "MaxRSS": "4K"}
            yield "|".join(extern[name] for name in names)


def _clock(seconds: float, digits: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    second = f"{rest:0{3 + digits if digits else 2}.{digits}f}"
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:{second}"
