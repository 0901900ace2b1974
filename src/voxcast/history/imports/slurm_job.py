"""A job of Slurm's accounting, from text or JSON, as a run of the history."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.runs.delimited import positive
from voxcast.history.imports.file_records import ImportedRun, NotARunError

if TYPE_CHECKING:
    from voxcast.records import Outcome

# Runs that something else ended did not fail; the state is also recorded as a label.
OUTCOMES: dict[str, Outcome] = {
    "COMPLETED": "completed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "out_of_memory",
    "FAILED": "failed",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "CANCELLED": "cancelled",
    "REVOKED": "preempted",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "LAUNCH_FAILED": "node_failure",
    "RECONFIG_FAIL": "node_failure",
}
UNFINISHED = (
    "PENDING", "RUNNING", "SUSPENDED", "RESIZING", "CONFIGURING", "COMPLETING", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SIGNALING", "EXPEDITING", "POWER_UP_NODE",
    "REQUEUE_FED", "RESV_DEL_HOLD", "UPDATE_DB",
)  # fmt: skip
# A job in one of these may have ended before it was started.
MAYBE_NEVER_RUN = ("preempted", "cancelled", "node_failure", "timeout")
MEMORY_NOTE = re.compile(r"memory limit|out.of.memory|oom[- ]?kill", re.IGNORECASE)
SIGKILL = 9
KILLED_BY_SLURM, ROOT = "CANCELLED by 0", "root"
NEAR_LIMIT = 0.9  # of the memory limit: Slurm samples every 30 s and misses the last increase
_QUARTER_HOUR_S = 900
SUMMER_TIME_S = 3600  # by local time a job may end before it starts


@dataclass
class SlurmJob:
    """One attempt of one job; ``start_s`` is in seconds of a clock in any time zone."""

    job_id: str
    state: str
    runtime_s: float | None
    name: str = ""
    exit_status: int | None = None
    signal: int = 0
    cpu_s: float | None = None
    time_limit_s: float | None = None
    peak_bytes: int | None = None
    is_bound: bool = False  # whether the peak is that of one task of several
    mem_limit_bytes: int | None = None
    cpus: int = 0
    gpus: int = 0
    tasks: int = 0  # of the step with most
    nodes: str = ""
    partition: str = ""
    cluster: str = ""
    user: str = ""
    account: str = ""
    submitted_at: str = ""
    start: str = ""
    start_s: int | None = None
    end_s: int | None = None
    notes: list[str] = field(default_factory=list)
    step_states: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add_step(self, largest: int | None, total: int | None, tasks: int | None) -> None:
        """Add the memory of a step; that of the job is the largest of its steps.

        Parameters
        ----------
        largest, total : int or None
            Of one task (MaxRSS) and of all tasks together (TRESUsageInTot), in bytes.
        tasks : int or None
            Number of tasks of the step; one if it is not known.
        """
        n_tasks = tasks or 1
        self.tasks = max(self.tasks, n_tasks)
        self.peak_bytes = max(self.peak_bytes or 0, largest or 0, total or 0) or None
        if largest and n_tasks > 1 and not total:
            self.is_bound = True
            self.unread.append(
                f"MaxRSS: that of one of {n_tasks} tasks; export TRESUsageInTot for that of all"
            )

    def imported_run(self, app: str | None) -> ImportedRun:
        """Return the run.

        Raises
        ------
        TableError
            If the state is unknown or the times are inconsistent.
        NotARunError
            If the job has not ended, or was never started.
        """
        state = slurm_state(self.state)
        if state in UNFINISHED:
            raise NotARunError(f"job {self.job_id} is {state}")
        if not self.runtime_s and OUTCOMES[state] in MAYBE_NEVER_RUN:
            raise NotARunError(f"job {self.job_id} is {state} and was never run")
        if (
            self.start_s is not None
            and self.end_s is not None
            and self.end_s < self.start_s - SUMMER_TIME_S
        ):
            raise TableError("ends before it starts")
        memory_method = "slurm_maxrss" if self.tasks == 1 else "slurm_tresusageintot"
        single_node = self.nodes if re.fullmatch(r"[\w.-]+", self.nodes) else ""
        return ImportedRun(
            identity=self._identity(),
            values={
                "app": app or self.name,
                "host_id": single_node,
                "node_type": self.partition,
                "device": "gpu" if self.gpus else "cpu",
                "cpus": self.cpus,
                "gpus": self.gpus,
                "mem_limit_bytes": positive(self.mem_limit_bytes),
                "outcome": self.outcome(),
                "exit_status": -self.signal if self.signal else self.exit_status,
                "limit_s": self.time_limit_s,
                "runtime_s": self.runtime_s,
                "cpu_s": positive(self.cpu_s),
                "cpu_method": "slurm_totalcpu" if self.cpu_s else "",
                "peak_rss_bytes": None if self.is_bound else self.peak_bytes,
                "memory_method": memory_method if self.peak_bytes and not self.is_bound else "",
                "started_at": self.start,
            },
            labels={
                "job_id": self.job_id,
                "job_name": self.name,
                "state": state,
                "nodes": "" if single_node else self.nodes,
                "cluster": self.cluster,
                "user": self.user,
                "account": self.account,
                "partition": self.partition,
                "submitted_at": self.submitted_at,
                "array_job": _array_job(self.job_id),
                "het_job": _het_job(self.job_id),
                "tasks": self.tasks if self.tasks > 1 else None,
                "peak_rss_at_least_bytes": self.peak_bytes if self.is_bound else None,
                "note": "; ".join(self.notes),
            },
            name=self.name,
            unread=self.unread,
        )

    def _identity(self) -> list[object]:
        # Job numbers recur on other clusters and after a requeue, so the start is part of the
        # identity. Text has local time and JSON has UTC; in all time zones they differ by whole
        # quarters of an hour.
        start_in_quarter_s = None if self.start_s is None else self.start_s % _QUARTER_HOUR_S
        return [self.job_id, start_in_quarter_s]

    def outcome(self) -> Outcome:
        """Return how the job ended, by its state; the exit code alone decides nothing.

        A job above its memory limit is ``OUT_OF_MEMORY`` where the kernel enforces the limit, and
        ``FAILED`` by a SIGKILL where Slurm does.

        Raises
        ------
        TableError
            If the state is unknown, or that of a job that has not ended.
        """
        state = slurm_state(self.state)
        if state in UNFINISHED:
            raise TableError(f"job {self.job_id} is {state} and has not ended")
        if self._has_step_killed_for_memory() and state in ("COMPLETED", "FAILED"):
            # A script may continue and complete after a step was killed.
            return "out_of_memory"
        if state not in ("FAILED", "CANCELLED"):
            return OUTCOMES[state]
        if any(MEMORY_NOTE.search(note) for note in self.notes):
            return "out_of_memory"
        if state == "CANCELLED":
            return OUTCOMES[state]
        # A SIGKILL for another reason differs only in the memory used.
        return "out_of_memory" if self.signal == SIGKILL and not self._far_below() else "failed"

    def _has_step_killed_for_memory(self) -> bool:
        """Tell whether the kernel, or Slurm where cgroups do not, killed a step.

        Seen on Slurm 22.05 with ``OverMemoryKill``, for jobs of an ordinary user: a step above the
        memory is `KILLED_BY_SLURM`, be it the batch step (the job is FAILED 0:9) or one of srun
        (FAILED 9:0, or COMPLETED if the script continues). A step that scancel ends is ``CANCELLED
        by`` the number of the job's user, even if root asks; a step that ends with its job, by
        scancel or the end of the script, is plainly ``CANCELLED``, and the job alone names who
        asked. So only a step of root's own, which root ended, has the state of one that Slurm
        killed; the memory used tells these apart.
        """
        if any(state.startswith("OUT_OF_ME") for state in self.step_states):
            return True
        if KILLED_BY_SLURM not in self.step_states:
            return False
        # Slurm kills by what it has sampled, so there is a peak then.
        return self.user != ROOT or (bool(self.peak_bytes) and not self._far_below())

    def _far_below(self) -> bool:
        """Tell whether the job is known to have used clearly less memory than its limit."""
        if not self.peak_bytes or not self.mem_limit_bytes:
            return False
        return self.peak_bytes < NEAR_LIMIT * self.mem_limit_bytes


def _array_job(job_id: str) -> str:
    array_job, sign, _ = job_id.partition("_")
    return array_job if sign else ""


def _het_job(job_id: str) -> str:
    het_job, sign, _ = job_id.partition("+")
    return het_job if sign else ""


def slurm_state(text: str) -> str:
    """Return the full name of a state that may be cut off, or be followed by who caused it.

    Raises
    ------
    TableError
        If it is not a state of Slurm.

    Examples
    --------
    >>> slurm_state("CANCELLED by 1000"), slurm_state("OUT_OF_ME+")
    ('CANCELLED', 'OUT_OF_MEMORY')
    """
    state_prefix = (text.split() or [""])[0].rstrip("+").upper()
    for name in (*OUTCOMES, *UNFINISHED):
        if state_prefix and name.startswith(state_prefix):
            return name
    raise TableError(f"column State: not a state of a Slurm job: {text[:60]!r}")
