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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError, RunError, VoxcastError
from voxcast.jobs.script import follow_up_script, read_machine
from voxcast.jobs.state import TaskState
from voxcast.jobs.submission import private_text
from voxcast.measure.trace import IDLE_CORES
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from voxcast.allocation.site import Cluster, MemoryCounted
    from voxcast.jobs.script import Machine
    from voxcast.jobs.state import SubmissionState, SubmittedArray, TaskId
    from voxcast.jobs.submission import Submission

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
LOOKS_PER_STALL = 5
ANSWER_S = 60.0  # patience with a command
IDS_PER_CALL = 1000
DEFAULT_SAMPLING_S = 30.0  # of memory, by Slurm's accounting
_PREFIX = re.compile(r"^(sbatch|sacct|scontrol|scancel|sinfo|sstat|squeue): ")
# Advice after a refusal of sbatch, by a part of its text.
_ADVICE = {
    "invalid partition": "choose one that `sinfo -s` lists",
    "time limit": "its limit is in `sinfo -s`; ask for less, or name another with --partition",
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
        then = "run this on a login node of the cluster, or give --executor local"
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
    if completed.returncode == 0 and not _is_away(completed.stderr):
        return completed.stdout
    problem = _problem(completed.stderr) or f"ended with exit code {completed.returncode}"
    if _is_away(completed.stderr):
        raise SlurmAwayError(problem, program)
    raise SlurmRefusedError(problem, program, _advice(completed.stderr))


def _is_away(stderr: str) -> bool:
    away = (
        "unable to contact slurm", "connection refused", "slurm backup controller",
        "unable to connect", "communication connection failure", "zero bytes were transmitted",
        "slurm_persist_conn_open", "socket timed out", "controller is in standby",
        "not responding", "problem talking to the database",
    )  # fmt: skip
    return any(text in stderr.lower() for text in away)


def _problem(stderr: str) -> str:
    """Return the most telling line: the last error, without its prefixes."""
    lines = [_PREFIX.sub("", line).strip() for line in stderr.splitlines()]
    errors = [line.removeprefix("error: ").removeprefix("fatal: ") for line in lines if line]
    return errors[-1].removeprefix("Batch job submission failed: ") if errors else ""


def _advice(stderr: str) -> str | None:
    text = stderr.lower()
    return next((advice for part, advice in _ADVICE.items() if part in text), None)


def submit(script: Path, options: Sequence[str]) -> str:
    """Submit a script and return the number of its job; errors as `call`."""
    answer = call(["sbatch", "--parsable", *options, str(script)])
    return answer.strip().partition(";")[0]  # a cluster's name may follow


def accounting(jobs: Iterable[str], *, with_steps: bool = True) -> str:
    """Return the lines of ``sacct`` on jobs, in `SACCT_COLUMNS`.

    Parameters
    ----------
    with_steps : bool, optional
        Also the lines on steps, which have the memory. The database looks them up job by job.
    """
    options = ["-P", "-n", f"--format={','.join(SACCT_COLUMNS)}", *([] if with_steps else ["-X"])]
    return "".join(call(["sacct", *options, "-j", ",".join(chunk)]) for chunk in _chunks(jobs))


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


def cpu_times(jobs: Iterable[str]) -> str:
    """Return ``JobID|AveCPU|NTasks`` of the steps of running jobs; each task has its own."""
    return "".join(
        call(["sstat", "-a", "-P", "-n", "-j", ",".join(chunk), "--format=JobID,AveCPU,NTasks"])
        for chunk in _chunks(jobs)
    )


def cancel(tasks: Iterable[str]) -> None:
    """Cancel jobs or tasks of arrays, such as ``12_3``."""
    for chunk in _chunks(tasks):
        call(["scancel", *chunk])


def jobs_named(name: str) -> list[str]:
    """Return the jobs of a name, from the controller and, where there is one, the accounting."""
    lines = call(["squeue", "-h", "-t", "all", f"--name={name}", "-o", "%F"]).split()
    try:
        text = call(
            ["sacct", "-X", "-P", "-n", f"--name={name}", "-S", "now-30days", "-o", "JobID"]
        )
        lines += [line.partition("_")[0] for line in text.split()]
    except (SlurmAwayError, SlurmRefusedError):
        pass  # the controller has answered
    return sorted(set(lines), key=int)


def partitions() -> dict[str, str]:
    """Return the time limits of the partitions, as `sinfo` writes them."""
    lines = call(["sinfo", "-h", "-o", "%R|%l"]).splitlines()
    return dict(line.strip().rpartition("|")[::2] for line in lines if "|" in line)


def memory_sampling_s() -> float | None:
    """Return the interval of `JobAcctGatherFrequency`; None where memory is not sampled."""
    try:
        text = call(["scontrol", "show", "config"])
    except (SlurmAwayError, SlurmRefusedError):
        return DEFAULT_SAMPLING_S
    match = re.search(r"^JobAcctGatherFrequency\s*=\s*(?:\S*\btask=)?(\d+)", text, re.MULTILINE)
    seconds = DEFAULT_SAMPLING_S if match is None else float(match[1])
    return seconds or None


def check_partition(name: str) -> None:
    """Check that there is such a partition.

    Raises
    ------
    ConfigError
        If there is not; the message lists all partitions.
    """
    names = partitions()
    if name not in names:
        listed = ", ".join(sorted(names)) or "none"
        raise ConfigError("Slurm has no such partition", name, f"it has {listed}")


def _chunks(ids: Iterable[str]) -> list[list[str]]:
    listed = list(dict.fromkeys(ids))
    return [listed[n : n + IDS_PER_CALL] for n in range(0, len(listed), IDS_PER_CALL)]


def from_sacct(
    text: str, notes: Callable[[TaskId], Sequence[str]] | None = None
) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `accounting`, by job and number.

    Parameters
    ----------
    notes : callable, optional
        Returns the lines of Slurm in the log of a task that failed.
    """
    return _states(SACCT_COLUMNS, text.splitlines(), notes)


def from_scontrol(
    text: str, notes: Callable[[TaskId], Sequence[str]] | None = None
) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `controller_lines`; see `from_sacct`."""
    lines = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        number = fields.get("ArrayTaskId", "")
        fields["JobID"] = f"{fields.get('ArrayJobId', '')}_" + (
            number if number.isdecimal() else f"[{number}]"
        )
        if "JobState" in fields:
            lines.append("|".join(fields.get(name, "") for name in _CONTROLLER_COLUMNS.values()))
    return _states(tuple(_CONTROLLER_COLUMNS), lines, notes)


def _states(
    columns: Sequence[str], lines: Sequence[str], notes: Callable[[TaskId], Sequence[str]] | None
) -> dict[TaskId, TaskState]:
    from voxcast.runs import slurm as reader

    frame = reader.accounting("\n".join(["|".join(columns), *lines]), details=True).frame
    return {
        key: TaskState(
            row.state,
            row.outcome or None,
            0.0 if math.isnan(row.runtime_s) else row.runtime_s,
            None if math.isnan(row.cpu_s) else row.cpu_s,
            int(row.peak_bytes) or None,
            row.job_number,
            row.node,
            row.submitted_at,
            row.started_at,
        )
        for key, row in reader.attempts(frame, notes).items()
    }


def cpu_seconds(text: str) -> dict[str, float]:
    """Return the CPU time of each running job and of each numbered step.

    Parameters
    ----------
    text : str
        Lines of `cpu_times`.
    """
    totals: dict[str, float] = {}
    for line in text.splitlines():
        step, _, rest = line.partition("|")
        average, _, tasks = rest.partition("|")
        job, _, name = step.partition(".")
        if name != "extern":
            seconds = 0.0
            with contextlib.suppress(VoxcastError):
                seconds = slurm_seconds(average) * (int(tasks) if tasks.isdecimal() else 1)
            totals[job] = totals.get(job, 0.0) + seconds
            if name.isdecimal():
                totals[step] = seconds
    return totals


def with_memory_counted(cluster: Cluster) -> Cluster:
    """Return a cluster with how it counts memory: as its file says, else as Slurm says here.

    It stays open where no Slurm answers.
    """
    if cluster.memory_counted is not None or shutil.which("scontrol") is None:
        return cluster
    try:
        return dataclasses.replace(cluster, memory_counted=memory_counted())
    except VoxcastError:  # installed and not set up, or away; to submit will tell
        return cluster


def memory_counted() -> MemoryCounted:
    """Return how memory is counted that is held against the request of a job.

    With ``OverMemoryKill`` Slurm adds up the resident pages of a job's processes and kills it;
    control groups alone count otherwise. ``NoShared`` leaves pages of files out of the sum.

    Raises
    ------
    SlurmAwayError, SlurmRefusedError, ConfigError
        If it cannot be asked.
    """
    return counted_by(call(["scontrol", "show", "config"]))


def counted_by(config: str) -> MemoryCounted:
    """Return the same from what ``scontrol show config`` prints."""
    settings = dict(
        re.findall(r"^(JobAcctGather(?:Type|Params))\s*=\s*(\S+)", config, re.MULTILINE)
    )
    params = settings.get("JobAcctGatherParams", "").lower().split(",")
    adds_up = settings.get("JobAcctGatherType", "").endswith("/linux")
    kills = "overmemorykill" in params and "noshared" not in params
    return "rss" if adds_up and kills else "cgroup"


@dataclass
class SlurmExecutor:
    """Submits the scripts of a submission, and queries all its jobs in one call."""

    submission: Submission
    _accounting_away: bool = False
    _unseen_since: dict[str, float] = field(default_factory=dict)
    # CPU time of a task when it last grew by more than an idle program uses, and when that was.
    _used: dict[TaskId, tuple[float, float]] = field(default_factory=dict)
    _next_look: float = 0.0
    _sampling: list[float | None] = field(default_factory=list)

    def submit(self, array: SubmittedArray) -> str:
        """Submit the script of an array; errors as `call`."""
        files = self.submission.files(array.number)
        options = [
            f"--output={files.log}",
            f"--chdir={self.submission.folder}",
            *self.submission.plan.slurm.options(),  # above variables such as SBATCH_ACCOUNT
        ]
        return submit(self.submission.script(array.number), options)

    def find(self, array: SubmittedArray) -> str:
        """Return the job of that name."""
        jobs = jobs_named(self.submission.job_name(array.number))
        return jobs[-1] if jobs else ""

    def states(
        self, arrays: Sequence[SubmittedArray], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states by one call of ``sacct``; by ``scontrol`` while that is away."""
        by_job = {array.job: array for array in arrays}

        def notes(task: TaskId) -> list[str]:
            """Return what Slurm, and not the application, wrote into the log."""
            lines = self.submission.log_tail(by_job[task[0]].number, task[1]).splitlines()
            return [line for line in lines if _NOTE.match(line)]

        try:
            text = accounting(by_job, with_steps=with_steps)
        except (SlurmAwayError, SlurmRefusedError) as error:
            if not self._accounting_away:
                logger.warning("no accounting (%s); asking scontrol", error.problem)
            self._accounting_away = True
            return from_scontrol(controller_lines(by_job), notes)
        if self._accounting_away:
            logger.info("the accounting answers again")
            self._accounting_away = False
        states = from_sacct(text, notes)
        seen = {job for job, _ in states}
        return states | self._lost([array for array in arrays if array.job not in seen])

    def stalled(self, running: Mapping[TaskId, TaskState]) -> list[TaskId]:
        """Return the tasks whose CPU time has not grown for the time of the plan."""
        stall_s = self.submission.plan.stall_s
        now = time.monotonic()
        if stall_s is None or not running or now < self._next_look:
            return []
        self._next_look = now + stall_s / LOOKS_PER_STALL
        totals = cpu_seconds(cpu_times(state.job for state in running.values()))
        stalled = []
        for task, state in running.items():
            if state.job not in totals:  # it has just ended
                continue
            used_s, since = self._used.get(task, (-math.inf, now))
            if totals[state.job] - used_s >= IDLE_CORES * stall_s:
                self._used[task] = totals[state.job], now
            elif now - since >= stall_s:
                stalled.append(task)
        return stalled

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Cancel tasks."""
        cancel(f"{job}_{n}" for job, n in tasks)

    def machine(self, folder: Path) -> Machine:
        """Return the description of the node that the script wrote."""
        return read_machine(folder)

    def memory_sampling_s(self) -> float | None:
        """Return the interval at which Slurm samples memory, queried once."""
        if not self._sampling:
            self._sampling = [memory_sampling_s()]
        return self._sampling[0]

    def _lost(self, arrays: Sequence[SubmittedArray]) -> dict[TaskId, TaskState]:
        """Return the tasks of jobs that Slurm has not known for long."""
        now = time.monotonic()
        lost: dict[TaskId, TaskState] = {}
        for array in arrays:
            if now - self._unseen_since.setdefault(array.job, now) < FORGOTTEN_S:
                continue
            of_controller = from_scontrol(controller_lines([array.job]))
            lost |= of_controller or {
                (array.job, n): TaskState("NODE_FAIL", "node_failure")
                for n in range(1, len(array.names) + 1)
            }
        return lost


def submit_follow_up(submission: Submission, state: SubmissionState) -> str:
    """Submit the job that follows a submission, and return its number; errors as `call`."""
    arrays = [state.arrays[number] for number in sorted({n for n, _ in state.live.values()})]
    jobs = [array.job for array in arrays if array.job]
    path = submission.folder / "arrays" / "follow.sbatch"
    private_text(path, follow_up_script(submission, arrays[0].request.partition, jobs))
    log = str(submission.folder / "logs").replace("%", "%%")
    options = [f"--output={log}/follow-%j.log", f"--chdir={submission.folder}"]
    return submit(path, [*options, *submission.plan.slurm.options()])
