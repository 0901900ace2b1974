"""The whole audit, from jobs to savings, and remarks on jobs whose figures need care."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.audit.groups import (
    KEYS,
    amounts,
    apps_of,
    core_hours,
    group_table,
    has_plausible_cpu_time,
)
from voxcast.audit.jobs import MINUTE_S
from voxcast.audit.savings import ASSUMPTIONS, AppSavings, JobPrices, Objective, savings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd
    from numpy.typing import NDArray

    from voxcast.allocation.site import Cluster
    from voxcast.audit.jobs import AuditedJobs
    from voxcast.runs.imported import NamePattern


# Slurm samples memory at this interval: a shorter job may end before the first sample.
SAMPLING_S = 30.0
INTERACTIVE_APPS = frozenset(
    {
        "interactive", "bash", "sh", "zsh", "tcsh", "csh", "fish", "salloc", "jupyter",
        "jupyterlab", "jupyter_notebook", "spawner_jupyterhub", "jupyterhub", "rstudio", "vscode",
        "code_server", "matlab_desktop", "xfce", "vnc", "desktop", "remote_desktop", "qlogin",
        "qrsh",
    }
)  # fmt: skip
# Open OnDemand names a job by its application.
INTERACTIVE_NAMES = r"(?i)^(?:sys/dashboard|ondemand|ood)[/_-]"


@dataclass(frozen=True)
class Remark:
    """A group of jobs, and how the audit treats them."""

    kind: str
    jobs: int
    core_hours: float
    text: str


def is_interactive(jobs: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which jobs were opened by hand, by their command, steps or name."""
    by_name = jobs["name"].str.contains(INTERACTIVE_NAMES)
    return np.asarray(jobs["interactive"] | jobs["app"].isin(INTERACTIVE_APPS) | by_name)


def remarks_of(jobs: pd.DataFrame, columns: set[str]) -> list[Remark]:
    """Return the groups of jobs whose figures need care, without empty ones.

    Parameters
    ----------
    columns : set of str
        Columns that the accounting has.
    """
    runtime, cpus = jobs["runtime_s"].to_numpy(), jobs["cpus"].to_numpy()
    peak, limit = jobs["peak_rss_bytes"].to_numpy(), jobs["mem_limit_bytes"].to_numpy()
    cpu_s, nodes = jobs["cpu_s"].to_numpy(), jobs["nodes"].to_numpy()
    outcome, long = jobs["outcome"].to_numpy(dtype=object), jobs["long"].to_numpy()
    completed, hours = outcome == "completed", core_hours(jobs)
    one_task = np.isfinite(jobs["peak_at_least_bytes"].to_numpy())
    unseen = completed & ~np.isfinite(peak) & ~one_task & (runtime >= SAMPLING_S)
    timed = np.isfinite(cpu_s) & (cpus * runtime > 0)
    one_node = completed & timed & (nodes > 1) & (cpu_s * nodes <= 1.1 * cpus * runtime)
    remarks = (
        ("", "below a minute", ~long,
         "counted in all hours, but not in ratios of requests or savings"),
        ("", "interactive", jobs["interactive"].to_numpy(),
         "opened by hand; counted in all hours, but not in savings"),
        ("", "all memory requested", jobs["all_memory"].to_numpy(),
         "ReqMem is 0, all memory of the nodes; not counted as an over-request"),
        ("requested_cpus", "more CPUs than requested", cpus > jobs["requested_cpus"].to_numpy(),
         "given whole nodes, or cores with two threads; the site also decides their efficiency"),
        ("limit_s", "no time limit", ~np.isfinite(jobs["limit_s"].to_numpy()),
         "not counted in requested time"),
        ("peak_rss_bytes", "memory of one task only", one_task,
         "MaxRSS covers the largest of several tasks, so that used memory is unknown; export "
         "TRESUsageInTot"),
        ("peak_rss_bytes", "memory not sampled", unseen, "no step states a peak"),
        ("peak_rss_bytes", "more memory than requested", completed & (peak > 1.01 * limit),
         "the site does not enforce memory, or counts shared memory twice"),
        ("peak_rss_bytes", "killed for memory below half of the request",
         (outcome == "out_of_memory") & (peak < 0.5 * limit),
         "the peak fell between two samples; used memory of killed jobs is not counted"),
        ("cpu_s", "no CPU time", completed & ~np.isfinite(cpu_s) & long,
         "TotalCPU is 0; not counted in CPU efficiency"),
        ("cpu_s", "impossible CPU time", timed & ~has_plausible_cpu_time(jobs),
         "more than twice the allocated core time; not counted in CPU efficiency"),
        ("cpu_s", "CPU time of one node only", one_node,
         "jobs of several nodes with the CPU time of one at most; ssh or mpirun started them "
         "outside Slurm, which did not measure the other nodes"),
        ("", "no CPUs stated", cpus == 0, "core-hours cannot be counted"),
    )  # fmt: skip
    return [
        Remark(kind, int(mask.sum()), float(hours[mask].sum()), text)
        for column, kind, mask, text in remarks
        if mask.any() and (not column or column in columns)
    ]


@dataclass(frozen=True, eq=False)
class Audit:
    """Everything an audit states.

    Attributes
    ----------
    total : DataFrame
        One row of `voxcast.audit.groups.group_table`.
    groups : dict of str to DataFrame
        By key of `voxcast.audit.groups.KEYS`.
    savings : list of AppSavings
        Most core-hours first.
    not_judged : list of str
        Applications with too few jobs, or without order in time.
    unpriced : dict of str to int
        Jobs without a price, by partition.
    """

    jobs: AuditedJobs
    total: pd.DataFrame
    groups: dict[str, pd.DataFrame]
    remarks: list[Remark]
    savings: list[AppSavings]
    not_judged: list[str]
    unpriced: dict[str, int]
    cluster: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the audit as JSON's types."""
        jobs = self.jobs
        return {
            "records": {
                "read": jobs.records,
                "jobs": len(jobs.frame),
                "not_ended": dict(jobs.not_ended),
                "never_started": dict(jobs.never_started),
                "below_a_second": jobs.instant,
                "duplicates": jobs.duplicates,
                "refused": dict(jobs.refused),
                "refused_examples": jobs.examples,
                "unread_fields": dict(jobs.unread),
            },
            "cluster": self.cluster,
            "unpriced": self.unpriced,
            "total": _rows(self.total)[0],
            "by": {key: _rows(table) for key, table in self.groups.items()},
            "remarks": [asdict(remark) for remark in self.remarks],
            "savings": [asdict(saving) for saving in self.savings],
            "not_judged": self.not_judged,
            "assumptions": list(ASSUMPTIONS),
        }


def prepare(audited: AuditedJobs, pattern: NamePattern | None = None) -> None:
    """Add to each job its application, its missing times, and whether it was interactive.

    Jobs below a minute are not ``long``: left out of ratios of requests, savings and the picture.
    """
    frame = audited.frame
    frame["long"] = frame["runtime_s"] >= MINUTE_S
    frame["app"] = apps_of(frame["name"], pattern)
    frame["start_s"] = frame["start_s"].fillna(frame["end_s"] - frame["runtime_s"])
    frame["end_s"] = frame["end_s"].fillna(frame["start_s"] + frame["runtime_s"])
    frame["interactive"] = is_interactive(frame)


def audit(
    audited: AuditedJobs,
    keys: Iterable[str] = KEYS,
    cluster: Cluster | None = None,
    objective: Objective | None = None,
    judged_apps: int = 20,
    on_app: Callable[[], object] | None = None,
) -> Audit:
    """Audit jobs that `prepare` has prepared.

    Parameters
    ----------
    keys : iterable of str
        Columns to group jobs by.
    cluster : Cluster, optional
        With the prices of hours.
    judged_apps : int
        Number of applications, by core-hours, whose requests are judged.
    on_app : callable, optional
        Called before each of them.
    """
    frame = audited.frame
    usd, unpriced = None, dict[str, int]()
    if cluster is not None:
        prices = JobPrices.of(frame, cluster)
        used = (frame[name].to_numpy() for name in ("mem_limit_bytes", "runtime_s", "limit_s"))
        usd = prices.usd(*used)
        counts = frame["partition"][~prices.priced].astype(str).value_counts().sort_index()
        unpriced = {str(name) or "(not stated)": int(count) for name, count in counts.items()}
    of_jobs = amounts(frame, usd)
    submitted = frame[~frame["interactive"]]
    by_app = submitted.groupby(submitted["app"].astype(str)).indices
    hours = of_jobs["core_hours"].groupby(submitted["app"].astype(str)).sum()
    savings, not_judged = [], []
    for name in hours.sort_values(ascending=False).index[:judged_apps]:
        if on_app is not None:
            on_app()
        jobs = submitted.iloc[by_app[name]]
        saving = savings_of(jobs, name, objective or Objective())
        if saving is None:
            not_judged.append(name)
        else:
            savings.append(saving)
    return Audit(
        audited, group_table(of_jobs, None),
        {key: group_table(of_jobs, frame[key]) for key in keys},
        remarks_of(frame, audited.columns), savings, not_judged, unpriced,
        None if cluster is None else cluster.name,
    )  # fmt: skip


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]
