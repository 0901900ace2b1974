"""What the jobs of an audit are, and which figures of them can be trusted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.hpc.audit.groups import plausible_cpu
from voxcast.hpc.audit.job_prices import core_hours
from voxcast.hpc.audit.jobs import MINUTE_S
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.hpc.audit.jobs import AuditedJobs

# Slurm samples memory this often: of a job that is shorter it may have seen nothing.
SAMPLING_S = 30.0
INTERACTIVE_APPS = frozenset(
    {
        "interactive", "bash", "sh", "zsh", "tcsh", "csh", "fish", "salloc", "jupyter",
        "jupyterlab",
        "jupyter_notebook", "spawner_jupyterhub", "jupyterhub", "rstudio", "vscode", "code_server",
        "matlab_desktop", "xfce", "vnc", "desktop", "remote_desktop", "qlogin", "qrsh",
    }
)  # fmt: skip
# Open OnDemand names a job by its application.
INTERACTIVE_NAMES = r"(?i)^(?:sys/dashboard|ondemand|ood)[/_-]"


@dataclass(frozen=True)
class Remark:
    """A group of jobs that are to be read with care; ``text`` says why."""

    kind: str
    jobs: int
    core_hours: float
    text: str

    def to_record(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def mark_interactive(audited: AuditedJobs) -> None:
    """Mark jobs that were opened by hand: by their command, steps or name."""
    frame = audited.frame
    names = frame["name"].cat.categories
    by_name = names.str.contains(INTERACTIVE_NAMES, regex=True)
    of_name = by_name[frame["name"].cat.codes.to_numpy()] if len(names) else False
    by_app = np.array([app in INTERACTIVE_APPS for app in frame["app"].cat.categories], dtype=bool)
    of_app = by_app[frame["app"].cat.codes.to_numpy()]
    audited.frame["interactive"] = frame["interactive"].to_numpy() | of_name | of_app


def remarks_of(audited: AuditedJobs) -> list[Remark]:
    """Return the groups of jobs whose figures are to be read with care; none that is empty."""
    frame = audited.frame
    runtime, cpus = frame["runtime_s"].to_numpy(), frame["cpus"].to_numpy()
    outcome = frame["outcome"].to_numpy(dtype=object)
    peak, cpu_s = frame["peak_rss_bytes"].to_numpy(), frame["cpu_s"].to_numpy()
    hours = core_hours(cpus, runtime)
    completed = outcome == "completed"
    remarks = []

    def add(kind: str, mask: NDArray[np.bool_], text: str) -> None:
        if mask.any():
            remarks.append(Remark(kind, int(mask.sum()), float(hours[mask].sum()), text))

    has = audited.columns
    shortest_s, long = audited.shortest_s, frame["long"].to_numpy()
    shortest = "a minute" if shortest_s == MINUTE_S else format_seconds(shortest_s)
    add(f"below {shortest}", ~long,
        "counted in all hours; left out of ratios of requests, and of savings")  # fmt: skip
    add("interactive", frame["interactive"].to_numpy(),
        "opened by hand: counted in all hours, left out of savings")  # fmt: skip
    add("all memory asked for", frame["all_memory"].to_numpy(),
        "ReqMem is 0, all memory of the nodes: no amount was asked for, so there is no "
            "over-request")  # fmt: skip
    if "requested_cpus" in has:
        more = cpus > frame["requested_cpus"].to_numpy()
        add("more CPUs than asked for", more,
            "given whole nodes or cores with two threads: their CPU efficiency is the site's "
            "too")  # fmt: skip
    if "limit_s" in has:
        add("no time limit", ~np.isfinite(frame["limit_s"].to_numpy()),
            "asked for no time: left out of requested time")  # fmt: skip
    if "peak_rss_bytes" in has:
        add("memory of one task only", np.isfinite(frame["peak_at_least_bytes"].to_numpy()),
            "MaxRSS is that of the largest task of several; export TRESUsageInTot for "
            "all. Left out of used memory; seff takes MaxRSS times tasks")  # fmt: skip
        unseen = completed & ~np.isfinite(peak) & ~np.isfinite(frame["peak_at_least_bytes"])
        add("memory not sampled", unseen & (runtime >= SAMPLING_S), "no step states a peak")
        limit = frame["mem_limit_bytes"].to_numpy()
        add("more memory than asked for", completed & (peak > 1.01 * limit),
            "the site does not enforce memory, or counts shared memory twice")  # fmt: skip
        killed = (outcome == "out_of_memory") & (peak < 0.5 * limit)
        add("killed for memory below half of it", killed,
            "the peak was between two samples: used memory of killed jobs is not "
            "counted")  # fmt: skip
    if "cpu_s" in has:
        add("no CPU time", completed & ~np.isfinite(cpu_s) & long,
            "TotalCPU is 0: left out of CPU efficiency")  # fmt: skip
        measured = np.isfinite(cpu_s) & (cpus * runtime > 0)
        add("impossible CPU time", measured & ~plausible_cpu(frame),
            "more than twice what was allocated: left out of CPU efficiency")  # fmt: skip
        nodes = frame["nodes"].to_numpy()
        low = completed & measured & (nodes > 1) & (cpu_s * nodes <= 1.1 * cpus * runtime)
        add("CPU time of one node only", low,
            "jobs of several nodes with the CPU time of at most one: started by ssh or mpirun "
            "outside Slurm, the other nodes were not measured")  # fmt: skip
    add("no CPUs stated", cpus == 0, "no core-hours can be counted")
    return remarks
