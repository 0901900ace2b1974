"""Slurm: its commands, with time limits and errors of one line, and arrays as jobs of it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, RunError, VoxcastError
from voxcast.files import write_text
from voxcast.jobs.script import follow_up_script, read_machine
from voxcast.jobs.state import (
    DEFAULT_SAMPLING_S,
    Executor,
    SubmissionState,
    TaskId,
    TaskState,
)
from voxcast.quantities import slurm_clock, slurm_memory

if TYPE_CHECKING:
    from voxcast.allocation.site import Cluster, MemoryCounted
    from voxcast.jobs.submission import Submission
    from voxcast.jobs.task import Array
    from voxcast.records import Request

logger = logging.getLogger(__name__)

SACCT_COLUMNS = (
    "JobID", "JobIDRaw", "State", "ExitCode", "ElapsedRaw", "TotalCPU", "MaxRSS", "ReqMem",
    "NodeList", "Submit", "Start", "End",
)  # fmt: skip
# Columns of the accounting by fields of the controller.
_CONTROLLER_COLUMNS = {
    "JobID": "JobID", "JobIDRaw": "JobId", "State": "JobState", "ExitCode": "ExitCode",
    "Elapsed": "RunTime", "NodeList": "NodeList", "Submit": "SubmitTime", "Start": "StartTime",
}  # fmt: skip
_FIELD = re.compile(r"(\w+)=(\S*)")

# Several daemons on a machine name their node.
_NOTE = re.compile(r"slurmstepd(-[\w.-]+)?: ")

FORGOTTEN_S = 600.0  # a job that neither accounting nor controller has is lost after this
ANSWER_S = 60.0  # patience with a command
IDS_PER_CALL = 1000
_PREFIX = re.compile(r"^(\w+: )?((error|fatal): )?(Batch job submission failed: )?")
# Parts of the answers of commands while a daemon does not answer.
_AWAY = (
    "unable to contact slurm", "connection refused", "slurm backup controller",
    "unable to connect", "communication connection failure", "zero bytes were transmitted",
    "slurm_persist_conn_open", "socket timed out", "controller is in standby",
    "not responding", "problem talking to the database",
)  # fmt: skip
# Advice after a refusal of sbatch, by a part of its text.
_ADVICE = {
    "invalid partition": "choose one that `sinfo -s` lists",
    "time limit": "its limit is in `sinfo -s`; ask for less, or name another partition",
    "memory specification": "no node of the partition has as much; ask for less",
    "node configuration": "no node of the partition is as large; ask for less",
    "account": "name one that `sacctmgr show associations user=$USER` lists",
    "qos": "name one that `sacctmgr show qos` lists",
    "job violates accounting": "a limit of the account or QOS; see `sacctmgr show associations`",
    "policy": "a limit of the account or QOS; see `sacctmgr show associations`",
}


# Variables of a user by which Slurm's commands depart from their arguments, as
# SBATCH_ARRAY_INX does, or SQUEUE_PARTITION. A job passes its own on to jobs submitted from
# it, where `srun` takes them for options: SLURM_GPUS of an interactive job fails every step.
_OPTIONS_OF_COMMANDS = re.compile(r"(SBATCH|SRUN|SLURM|SACCT|SQUEUE|SCANCEL|SINFO|SSTAT)_")
_OF_THE_SITE = (
    "SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SBATCH_QOS",
    "SBATCH_CONSTRAINT", "SBATCH_RESERVATION", "SBATCH_WCKEY", "SBATCH_CLUSTERS", "SBATCH_EXPORT",
)  # fmt: skip


class SlurmAwayError(RunError):
    """A daemon of Slurm does not answer; it may later."""


class SlurmRefusedError(ConfigError):
    """Slurm refuses a request."""


def check_installed() -> None:
    """Check that this machine can submit jobs.

    Raises
    ------
    ConfigError
        If ``sbatch`` is missing.
    """
    if shutil.which("sbatch") is None:
        then = "run this on a login node of the cluster, or give --cluster local"
        raise ConfigError("no such command here", "sbatch", then)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which commands of Slurm do what their arguments say.

    Times are written in full, and lists of tasks are not cut off.
    """
    remaining = {
        name: value
        for name, value in variables.items()
        if name in _OF_THE_SITE or not _OPTIONS_OF_COMMANDS.match(name)
    }
    return remaining | {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "standard"}


def call(arguments: Sequence[str], patience_s: float = ANSWER_S) -> str:
    """Run a command of Slurm and return its output.

    Raises
    ------
    SlurmAwayError
        If it does not answer, or says that a daemon does not.
    SlurmRefusedError
        If it refuses for another reason.
    """
    program = arguments[0]
    try:
        # A session of its own: Ctrl-C must not stop it between a submission and its answer.
        completed = subprocess.run(
            arguments, capture_output=True, text=True, errors="backslashreplace", check=False,
            timeout=patience_s, stdin=subprocess.DEVNULL, start_new_session=True,
            env=environment(os.environ),
        )  # fmt: skip
    except FileNotFoundError:
        raise ConfigError("no such command here", program, "run this on a login node") from None
    except subprocess.TimeoutExpired:
        raise SlurmAwayError(f"no answer within {patience_s:g} s", program) from None
    message = completed.stderr.lower()
    is_away = any(text in message for text in _AWAY)
    if completed.returncode == 0 and not is_away:
        return completed.stdout
    lines = [_PREFIX.sub("", line).strip() for line in completed.stderr.splitlines()]
    problem = next(
        (line for line in reversed(lines) if line),
        f"ended with exit code {completed.returncode}",
    )
    if is_away:
        raise SlurmAwayError(problem, program)
    advice = next((advice for part, advice in _ADVICE.items() if part in message), None)
    raise SlurmRefusedError(problem, program, advice)


def submit(submission: Submission, script: Path, log: str) -> str:
    """Submit a script of a submission and return the number of its job; errors as `call`."""
    # The options are given again, above variables such as SBATCH_ACCOUNT.
    options = [f"--output={log}", f"--chdir={submission.folder}", *submission.plan.slurm.options()]
    answer = call(["sbatch", "--parsable", *options, str(script)])
    return answer.strip().partition(";")[0]  # a cluster's name may follow


def about(command: Sequence[str], jobs: Iterable[str]) -> str:
    """Return what a command says of jobs, whose numbers are its last argument."""
    listed = list(dict.fromkeys(jobs))
    chunks = (listed[n : n + IDS_PER_CALL] for n in range(0, len(listed), IDS_PER_CALL))
    return "".join(call([*command, ",".join(chunk)]) for chunk in chunks)


def accounting(jobs: Iterable[str], *, with_steps: bool = True) -> str:
    """Return the lines of ``sacct`` on jobs, in `SACCT_COLUMNS`.

    Parameters
    ----------
    with_steps : bool, optional
        Also the lines on steps, which have the memory. The database looks them up job by job.
    """
    steps = [] if with_steps else ["-X"]
    return about(["sacct", "-P", "-n", f"--format={','.join(SACCT_COLUMNS)}", *steps, "-j"], jobs)


def controller_lines(jobs: Iterable[str]) -> str:
    """Return the lines of ``scontrol show job``; a job that it has forgotten is left out."""
    lines = []
    for job in jobs:
        try:
            lines.append(call(["scontrol", "-o", "show", "job", job]))
        except SlurmRefusedError as error:
            if "invalid job id" not in str(error).lower():
                raise
    return "".join(lines)


def jobs_named(name: str) -> list[str]:
    """Return the jobs of a name, from the controller and, where there is one, the accounting."""
    lines = call(["squeue", "-h", "-t", "all", f"--name={name}", "-o", "%F"]).split()
    try:
        since = ["-S", "now-30days", "-o", "JobID"]
        lines += call(["sacct", "-X", "-P", "-n", f"--name={name}", *since]).split()
    except (SlurmAwayError, SlurmRefusedError):
        pass  # the controller has answered
    return sorted({line.partition("_")[0] for line in lines}, key=int)


def settings() -> dict[str, str]:
    """Return the settings of Slurm; errors as `call`."""
    text = call(["scontrol", "show", "config"])
    return dict(re.findall(r"^(\w+)\s*=\s*(\S+)", text, re.MULTILINE))


def with_memory_counted(cluster: Cluster) -> Cluster:
    """Return a cluster with how it counts memory: as its file says, else as Slurm says here.

    It stays open where no Slurm answers.
    """
    if shutil.which("scontrol") is None:
        return cluster
    with contextlib.suppress(VoxcastError):  # installed and not set up, or away
        counted, stated = memory_counted(settings())
        counted = cluster.memory_counted or counted
        return dataclasses.replace(cluster, memory_counted=counted, memory_stated=stated)
    return cluster


def memory_counted(settings: Mapping[str, str]) -> tuple[MemoryCounted, MemoryCounted]:
    """Return how memory is counted that is held against a request, and that is stated as MaxRSS.

    The latter is the sum of the resident pages of a job's processes, with pages of files unless
    ``NoShared`` leaves these out; with ``OverMemoryKill`` Slurm kills by it. Control groups alone
    count otherwise.
    """
    parameters = settings.get("JobAcctGatherParams", "").lower().split(",")
    adds_up = settings.get("JobAcctGatherType", "").endswith("/linux")
    stated: MemoryCounted = "rss" if adds_up and "noshared" not in parameters else "cgroup"
    return stated if "overmemorykill" in parameters else "cgroup", stated


def from_scontrol(
    text: str, notes: Callable[[TaskId], Sequence[str]] | None = None
) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `controller_lines`; see `from_sacct`."""
    lines = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        number = fields.get("ArrayTaskId", "")
        task = number if number.isdecimal() else f"[{number}]"
        fields["JobID"] = f"{fields.get('ArrayJobId', '')}_{task}"
        if "JobState" in fields:
            lines.append("|".join(fields.get(name, "") for name in _CONTROLLER_COLUMNS.values()))
    return from_sacct("\n".join(lines), notes, tuple(_CONTROLLER_COLUMNS))


def from_sacct(
    text: str,
    notes: Callable[[TaskId], Sequence[str]] | None = None,
    columns: Sequence[str] = SACCT_COLUMNS,
) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `accounting`, by job and number.

    Parameters
    ----------
    notes : callable, optional
        Returns the lines of Slurm in the log of a task that failed.
    """
    from voxcast.runs import slurm as reader

    frame = reader.accounting(f"{'|'.join(columns)}\n{text}", details=True).frame
    return {
        key: TaskState(
            row.state, row.outcome or None, 0.0 if math.isnan(row.runtime_s) else row.runtime_s,
            row.job_number,
            {
                "cpu_s": None if math.isnan(row.cpu_s) else row.cpu_s,
                "peak_bytes": int(row.peak_bytes) or None, "node": row.node,
                "submitted_at": row.submitted_at, "started_at": row.started_at,
            },
        )
        for key, row in reader.attempts(frame, notes).items()
    }  # fmt: skip


@dataclass
class SlurmExecutor(Executor):
    """Submits the scripts of a submission, and queries all its jobs in one call."""

    submission: Submission
    _said_away: bool = False
    _unseen_since: dict[str, float] = field(default_factory=dict)

    def submit(self, array: Array) -> str:
        log = self.submission.files(array.number).log
        return submit(self.submission, self.submission.script(array.number), log)

    def find(self, array: Array) -> str:
        jobs = jobs_named(self.submission.job_name(array.number))
        return jobs[-1] if jobs else ""

    def states(
        self, arrays: Sequence[Array], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states by one call of ``sacct``; by ``scontrol`` while that is away."""
        by_job = {array.job: array for array in arrays}

        def notes(task: TaskId) -> list[str]:
            """Return what Slurm, and not the application, wrote into the log."""
            lines = self.submission.log_tail(by_job[task[0]].number, task[1]).splitlines()
            return [line for line in lines if _NOTE.match(line)]

        try:
            states = from_sacct(accounting(by_job, with_steps=with_steps), notes)
            unseen = by_job.keys() - {job for job, _ in states}
            self._said_away = False
        except (SlurmAwayError, SlurmRefusedError) as error:
            if not self._said_away:
                logger.warning("no accounting (%s); asking scontrol", error.problem)
            self._said_away = True
            return from_scontrol(controller_lines(by_job), notes)
        return states | self._forgotten(unseen, by_job)

    def _forgotten(
        self, unseen: Iterable[str], by_job: Mapping[str, Array]
    ) -> dict[TaskId, TaskState]:
        """Return the tasks of jobs that the accounting has not known for long.

        They are lost where the controller does not know them either. Before that their records
        may be on the way, with the memory that only the accounting has.
        """
        now, lost = time.monotonic(), TaskState("NODE_FAIL", "node_failure")
        forgotten: dict[TaskId, TaskState] = {}
        for job in unseen:
            if now - self._unseen_since.setdefault(job, now) >= FORGOTTEN_S:
                forgotten |= from_scontrol(controller_lines([job])) or {
                    (job, number): lost for number in range(1, len(by_job[job].names) + 1)
                }
        return forgotten

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        call(["scancel", *(f"{job}_{number}" for job, number in tasks)])

    def raise_requests(self, array: Array, numbers: Sequence[int], request: Request) -> list[int]:
        # The accounting lags behind, and one task that has started makes Slurm refuse.
        listed = call(["squeue", "-h", "-r", "-t", "PD", "-j", array.job, "-o", "%K"])
        pending = set(listed.split())
        waiting = [number for number in numbers if str(number) in pending]
        if waiting:
            per_cpu = request.partition in self.submission.plan.slurm.memory_per_cpu
            memory = slurm_memory(request.memory_bytes / (request.cpus if per_cpu else 1))
            call([
                "scontrol", "update", f"JobId={array.job}_[{','.join(map(str, waiting))}]",
                f"TimeLimit={slurm_clock(request.walltime_s)}",
                f"MinMemory{'CPU' if per_cpu else 'Node'}={memory.removesuffix('M')}",
            ])  # fmt: skip
        return waiting

    def machine(self, folder: Path) -> dict[str, str]:
        return read_machine(folder)

    @cached_property
    def memory_sampling_s(self) -> float | None:
        """The interval at which Slurm samples memory; None where it does not."""
        try:
            frequency = settings().get("JobAcctGatherFrequency", "")
        except (SlurmAwayError, SlurmRefusedError):
            frequency = ""
        match = re.match(r"(?:\S*\btask=)?(\d+)", frequency)
        return (float(match[1]) if match else DEFAULT_SAMPLING_S) or None


def submit_follow_up(submission: Submission, state: SubmissionState) -> str:
    """Submit the job that follows a submission, and return its number; errors as `call`."""
    arrays = [state.arrays[number] for number in sorted({n for n, _ in state.live.values()})]
    jobs = [array.job for array in arrays if array.job]
    path = submission.folder / "arrays" / "follow.sbatch"
    write_text(path, follow_up_script(submission, arrays[0].request.partition, jobs))
    log = str(submission.folder / "logs").replace("%", "%%")
    return submit(submission, path, f"{log}/follow-%j.log")
