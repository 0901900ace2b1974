"""A job of Slurm's accounting, from text or JSON, as a run of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from voxcast.errors import TableError
from voxcast.history.imports.reading import Found, NotARunError, positive

# Runs that were stopped from outside say nothing against the application: they are preempted,
# whether a higher job, a user or a broken node stopped them. The state itself is kept as a label.
OUTCOMES = {
    "COMPLETED": "completed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "out_of_memory",
    "FAILED": "failed",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "CANCELLED": "preempted",
    "REVOKED": "preempted",
    "NODE_FAIL": "preempted",
    "BOOT_FAIL": "preempted",
}
UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "CONFIGURING", "COMPLETING",
              "REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SIGNALING")  # fmt: skip
_MEMORY_NOTE = re.compile(r"memory limit|out.of.memory|oom[- ]?kill", re.IGNORECASE)
_SIGKILL = 9
_NEAR_LIMIT = 0.9  # of the memory limit: Slurm samples every 30 s and misses the last step up
_QUARTER_HOUR_S = 900
_SUMMER_TIME_S = 3600  # a job may end before it starts by the clock on the wall


@dataclass
class SlurmJob:
    """One attempt of one job; ``start_s`` are seconds of some clock, whatever its time zone."""

    job_id: str
    state: str
    runtime_s: float | None
    name: str = ""
    exit_status: int | None = None
    signal: int = 0
    cpu_s: float | None = None
    time_limit_s: float | None = None
    peak_bytes: int | None = None
    mem_limit_bytes: int | None = None
    cpus: int = 0
    gpus: int = 0
    tasks: int | None = None
    nodes: str = ""
    partition: str = ""
    cluster: str = ""
    start: str = ""
    start_s: int | None = None
    end_s: int | None = None
    notes: list[str] = field(default_factory=list)
    step_states: list[str] = field(default_factory=list)

    def add_peak(self, peak_bytes: int | None) -> None:
        """Take a step's peak memory: the job's is that of its largest step."""
        if peak_bytes and peak_bytes > (self.peak_bytes or 0):
            self.peak_bytes = peak_bytes

    def found(self, app: str | None) -> Found:
        """Return the run.

        Raises
        ------
        TableError
            If state or times make no sense.
        NotARunError
            If the job has not ended, or never started.
        """
        state = _state(self.state)
        if state in UNFINISHED:
            raise NotARunError(f"job {self.job_id} is {state}")
        if not self.runtime_s and OUTCOMES[state] == "preempted":
            raise NotARunError(f"job {self.job_id} is {state} and never ran")
        if (
            self.start_s is not None
            and self.end_s is not None
            and self.end_s < self.start_s - _SUMMER_TIME_S
        ):
            raise TableError("ends before it starts")
        single = self.nodes if re.fullmatch(r"[\w.-]+", self.nodes) else ""
        return Found(
            identity=self._identity(),
            known={
                "app": app or self.name,
                "host_id": single,
                "node_type": self.partition,
                "device": "gpu" if self.gpus else "cpu",
                "cpus": self.cpus,
                "gpus": self.gpus,
                "mem_limit_bytes": positive(self.mem_limit_bytes),
                "outcome": self._outcome(state),
                "exit_status": -self.signal if self.signal else self.exit_status,
                "limit_s": self.time_limit_s,
                "runtime_s": self.runtime_s,
                "cpu_s": positive(self.cpu_s),
                "cpu_method": "slurm_totalcpu" if self.cpu_s else "",
                "peak_rss_bytes": self.peak_bytes,
                "memory_method": "slurm_maxrss" if self.peak_bytes else "",
                "started_at": self.start,
            },
            labels={
                "job_id": self.job_id,
                "job_name": self.name,
                "state": state,
                "nodes": "" if single else self.nodes,
                "cluster": self.cluster,
                # MaxRSS is that of one task, so it is not the job's where there are several.
                "tasks": self.tasks if (self.tasks or 1) > 1 else None,
                "note": "; ".join(self.notes),
            },
        )

    def _identity(self) -> list[object]:
        # Job numbers come again on another cluster and after a requeue, so the start belongs to
        # the identity; text has it in local time and JSON in UTC, which agree in all time zones
        # up to whole quarters of an hour.
        within = None if self.start_s is None else self.start_s % _QUARTER_HOUR_S
        return [self.job_id, within]

    def _outcome(self, state: str) -> str:
        killed = any(own.startswith("OUT_OF_ME") for own in self.step_states)
        if killed and state in ("COMPLETED", "FAILED"):
            # A script may go on after a step of it was killed, and end well.
            return "out_of_memory"
        if state != "FAILED":
            return OUTCOMES[state]
        if any(_MEMORY_NOTE.search(note) for note in self.notes):
            return "out_of_memory"
        if self.signal != _SIGKILL:
            return "failed"
        # Without cgroups Slurm itself kills a job that is over its memory: FAILED 0:9, the step
        # "CANCELLED by 0". Somebody else's SIGKILL looks alike but for the memory it had.
        if self.peak_bytes and self.mem_limit_bytes and "CANCELLED by 0" not in self.step_states:
            near = self.peak_bytes >= _NEAR_LIMIT * self.mem_limit_bytes
            return "out_of_memory" if near else "failed"
        return "out_of_memory"


def _state(text: str) -> str:
    word = (text.split() or [""])[0].rstrip("+").upper()
    for name in (*OUTCOMES, *UNFINISHED):
        if word and name.startswith(word):
            return name
    raise TableError(f"not a state of a Slurm job: {text[:60]!r}")
