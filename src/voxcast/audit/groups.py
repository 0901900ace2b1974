"""Requested and used resources of groups of jobs, and their failures by cause.

Jobs are rows of `voxcast.runs.slurm.read`. Savings are in `voxcast.audit.savings`.

The application of a job, from its name.

The parts that differ between the jobs of one application are dropped: folders and endings of
scripts, entities of BIDS (``sub-01``, ``ses-2``), what stands in parentheses (Nextflow's sample),
hashes and all numbers. ``recon_sub-01``, ``recon-17`` and ``/home/ann/Recon.sh`` are all `recon`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from voxcast.allocation.site import BYTES_PER_GB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.runs.imported import NamePattern

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

NO_NAME = "(no name)"
ONLY_NUMBERS = "(numbers only)"
OTHER_NAME = "(other names)"
LONGEST = 256  # longer names are not searched

_ENDING = re.compile(r"\.(?:sh|bash|slurm|sbatch|sub|job|batch|cmd|pbs|qsub|py|r|m|jl)$")
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_ENTITY = re.compile(
    r"(?:^|(?<=[^a-z0-9]))(?:sub|subj|subject|ses|session|run|task|acq|dir|echo|part)[-=][a-z0-9]+"
)
_HASH = re.compile(
    r"(?:^|(?<=[^a-z0-9]))(?=[a-z]*[0-9])(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|"
    r"[0-9a-f]{8,64})(?=$|[^a-z0-9])"
)
_NUMBER = re.compile(r"v?[0-9]+(?:[.][0-9]+)*")
_GAP = re.compile(r"[-_.,:;=+%#@~\s\[\]{}()]+")


def app_of(name: str) -> str:
    """Return the application of a job with this name.

    Examples
    --------
    >>> app_of("recon_sub-01"), app_of("/home/ann/fMRIPrep-20.2.1.sh"), app_of("12")
    ('recon', 'fmriprep', '(numbers only)')
    """
    if not name:
        return NO_NAME
    text = name[:LONGEST].lower().rstrip("/").rpartition("/")[2]
    for pattern in (_ENDING, _IN_PARENTHESES, _ENTITY, _HASH, _NUMBER):
        text = pattern.sub(" ", text)
    return _GAP.sub("_", text).strip("_") or ONLY_NUMBERS


def apps_of(names: pd.Series, pattern: NamePattern | None = None) -> pd.Series:
    """Return the application of each job.

    Parameters
    ----------
    names : Series of category
        Names of the jobs.
    pattern : NamePattern, optional
        Takes the application out of a name, in place of the rules of this module; names that do
        not match are `OTHER_NAME`.
    """
    distinct = list(names.cat.categories)
    if pattern is None:
        apps = {name: app_of(name) for name in distinct}
    else:
        apps = {name: app or OTHER_NAME for name, app in pattern.values_in(distinct).items()}
    return names.map(apps).astype("category")


CAUSES = ("timeout", "out_of_memory", "failed", "cancelled", "preempted", "node_failure")
KEYS = ("user", "account", "partition", "app")
ALL = "all jobs"
NOT_STATED = "(not stated)"
# CPU time above this multiple of the allocated core time is an error of the accounting.
MAX_CPU_EFFICIENCY = 2.0
QUARTILES = (0.25, 0.5, 0.75)
_RATIOS = {
    "cpu_efficiency": ("cpu_hours", "efficiency_hours"),
    "time_used": ("used_of_requested_core_hours", "requested_core_hours"),
    "memory_used": ("used_gb_hours", "requested_gb_hours"),
}


def core_hours(jobs: pd.DataFrame) -> Floats:
    """Return the core-hours allocated to each job, shape (n,)."""
    return np.asarray(jobs["cpus"] * jobs["runtime_s"] / SECONDS_PER_HOUR)


def requested_memory(jobs: pd.DataFrame) -> Floats:
    """Return the bytes requested by each job; NaN if it requested all memory of its nodes."""
    return np.asarray(jobs["mem_limit_bytes"].mask(jobs["all_memory"]))


def has_plausible_cpu_time(jobs: pd.DataFrame) -> Mask:
    """Return which jobs used no more CPU time than their CPUs can provide."""
    allocated = jobs["cpus"] * jobs["runtime_s"]
    return np.asarray((allocated > 0) & (jobs["cpu_s"] <= MAX_CPU_EFFICIENCY * allocated))


def amounts(jobs: pd.DataFrame, usd: Floats | None = None) -> pd.DataFrame:
    """Return the amounts of each job that `group_table` adds up.

    Parameters
    ----------
    jobs : DataFrame
        With ``app`` and ``long`` from `voxcast.audit.report.prepare`.
    usd : ndarray, shape (n,), optional
        Cost of each job.
    """
    runtime, limit = jobs["runtime_s"].to_numpy(), jobs["limit_s"].to_numpy()
    cpus, peak = jobs["cpus"].to_numpy(), jobs["peak_rss_bytes"].to_numpy()
    hours, allocated, requested = (
        runtime / SECONDS_PER_HOUR,
        core_hours(jobs),
        requested_memory(jobs),
    )
    outcome, long = jobs["outcome"].to_numpy(dtype=object), jobs["long"].to_numpy()
    completed = outcome == "completed"
    plausible = completed & has_plausible_cpu_time(jobs)
    has_limit = completed & (limit > 0) & np.isfinite(limit) & (cpus > 0)
    has_memory = completed & np.isfinite(requested) & np.isfinite(peak)

    def where(mask: Mask, values: Floats, other: float = 0.0) -> Floats:
        return np.where(mask, values, other)

    columns: dict[str, Any] = {"jobs": 1, "completed": completed}
    columns |= {cause: outcome == cause for cause in CAUSES}
    columns |= {
        "core_hours": allocated,
        "gpu_hours": jobs["gpus"].to_numpy() * hours,
        "lost_core_hours": where(~completed, allocated),
        **{f"{cause}_core_hours": where(outcome == cause, allocated) for cause in CAUSES},
        "efficiency_hours": where(plausible, allocated),
        "cpu_hours": where(plausible, jobs["cpu_s"].to_numpy() / SECONDS_PER_HOUR),
        "requested_core_hours": where(has_limit, cpus * limit / SECONDS_PER_HOUR),
        "used_of_requested_core_hours": where(has_limit, allocated),
        "requested_gb_hours": where(has_memory, requested / BYTES_PER_GB * hours),
        "used_gb_hours": where(has_memory, peak / BYTES_PER_GB * hours),
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        columns["time_ratio"] = where(has_limit & long, limit / runtime, np.nan)
        columns["memory_ratio"] = where(has_memory & long, requested / peak, np.nan)
    if usd is not None:
        columns |= {"usd": np.nan_to_num(usd), "lost_usd": where(~completed, np.nan_to_num(usd))}
    return pd.DataFrame(columns, index=jobs.index)


def group_table(of_jobs: pd.DataFrame, labels: pd.Series | None) -> pd.DataFrame:
    """Add up the amounts of each group of jobs.

    Parameters
    ----------
    of_jobs : DataFrame
        From `amounts`.
    labels : Series of category or None
        Group of each job; None for one group of all jobs.

    Returns
    -------
    DataFrame
        A row for each group, by decreasing core-hours: ``key``, numbers of jobs by outcome, hours
        (``lost_core_hours`` of jobs that did not complete), the shares ``cpu_efficiency``,
        ``time_used`` and ``memory_used``, quartiles of requested over used time and memory
        (``time_ratio_25`` to ``memory_ratio_75``), and ``usd``. NaN if unknown.
    """
    by = pd.Series(ALL, of_jobs.index)
    if labels is not None:
        by = labels.astype(object).fillna("").replace("", NOT_STATED)
    ratios = ["time_ratio", "memory_ratio"]
    groups = of_jobs.groupby(by, sort=False)
    table = groups[[name for name in of_jobs if name not in ratios]].sum()
    for name, (used, of) in _RATIOS.items():
        table[name] = table[used] / table[of].where(table[of] > 0)
    for name in ratios:
        for share in QUARTILES:
            table[f"{name}_{share * 100:.0f}"] = groups[name].quantile(share)
    table.insert(0, "key", table.index.astype(str))
    return table.sort_values(["core_hours", "key"], ascending=[False, True], ignore_index=True)
