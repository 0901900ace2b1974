"""Jobs whose figures need care: interactive ones, and gaps and errors of the accounting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.audit.groups import core_hours, has_plausible_cpu_time
from voxcast.audit.jobs import MINUTE_S
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

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


def remarks_of(jobs: pd.DataFrame, columns: set[str], shortest_s: float) -> list[Remark]:
    """Return the groups of jobs whose figures need care, without empty ones.

    Parameters
    ----------
    columns : set of str
        Columns that the accounting has.
    shortest_s : float
        Shorter jobs are not ``long``.
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
    shortest = "a minute" if shortest_s == MINUTE_S else format_seconds(shortest_s)
    remarks = (
        ("", f"below {shortest}", ~long,
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
