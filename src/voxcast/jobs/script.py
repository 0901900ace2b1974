"""Texts for ``sbatch``: a job, an array, workers, and the job that follows a submission.

The tasks of an array are a file of shell functions, one a task, which its script reads. Every word
that a user or a file name decides passes `shlex.quote`; nothing is expanded twice.

Tasks of similar requests share an array. More arrays are more work for the scheduler and its
users; fewer request more than tasks need. Consecutive tasks, in the order of their time, form the
groups with the least excess of requests plus a fixed price for each array, by dynamic programming
over distinct requests.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.apps.app import THREAD_VARIABLES, command, environment
from voxcast.apps.containers import (
    BIDS,
    DATASET_FILE,
    INPUTS,
    SCRATCH,
    WRITES_THROUGH,
    bids_folder,
    reads_bids,
)
from voxcast.jobs.submission import OUT_NAME, ArrayFiles, Plan, Submission
from voxcast.jobs.task import Array, Task, safe_name
from voxcast.quantities import (
    counted,
    format_bytes,
    format_seconds,
    memory_option,
    slurm_clock,
)
from voxcast.records import App, Configuration, Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.recommendation import Recommendation
    from voxcast.measure.host import HostFacts

CPUS_VARIABLE, MEMORY_VARIABLE = "VOXCAST_CPUS", "VOXCAST_MEMORY_BYTES"
MACHINE_FILE = "machine"  # in the folder of an attempt
_BABS_KEYS = {
    "--cpus-per-task": "number_of_cpus", "--time": "hard_runtime_limit",
    "--mem": "hard_memory_limit",
}  # fmt: skip
FOLLOW_UP = Request(600.0, 10**9)
MAX_TASKS = 1000  # of an array, unless a site raises MaxArraySize
ARRAY_CORE_H = 1.0  # what one array more must save
GB_PER_CORE = 4.0  # memory that counts as much as a core
_DATASET = '{"Name": "one image", "BIDSVersion": "1.10.0"}'
_THREADS = "export " + " ".join(f'{name}="$SLURM_CPUS_PER_TASK"' for name in THREAD_VARIABLES)
# GNU nproc counts the cores that the job may use, unless a variable of OpenMP says otherwise.
_MACHINE_LINES = (
    'printf "name %s\\n" "$(uname -n)"',
    'printf "machine_id %s\\n" "$(cat /etc/machine-id 2>/dev/null)"',
    'grep -m 1 "^model name" /proc/cpuinfo',
    'printf "cores %s\\n" "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)"',
)
_GPU_LINE = "nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sed 's/^/gpu /'"


@dataclass(frozen=True)
class Job:
    """The head of a script.

    Attributes
    ----------
    name : str
    remarks : tuple of str
        Comments above the lines.
    memory_per_cpu : bool
        The site takes ``--mem-per-cpu`` only.
    tasks : int
        Of an array; 0 for a plain job.
    throttle : int or None
        How many of the tasks may run at a time.
    further : tuple of str
        Other options of ``sbatch``.
    """

    name: str
    request: Request
    remarks: tuple[str, ...] = ()
    memory_per_cpu: bool = False
    tasks: int = 0
    throttle: int | None = None
    further: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Return the options of ``sbatch``."""
        request, at_a_time = self.request, f"%{self.throttle}" if self.throttle else ""
        partition = safe_name(request.partition)
        options = [
            f"--job-name={safe_name(self.name)}",
            f"--partition={partition}" if partition else "",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={request.cpus}",
            f"--gres=gpu:{request.gpus}" if request.gpus else "",
            f"--time={slurm_clock(request.walltime_s)}",
            memory_option(request.memory_bytes, request.cpus, per_cpu=self.memory_per_cpu),
            f"--array=1-{self.tasks}{at_a_time}" if self.tasks else "",
            *self.further,
        ]
        return [option for option in options if option]

    def lines(self) -> list[str]:
        """Return the comments and the ``#SBATCH`` lines."""
        remarks = [f"# {_printable(remark)}" for remark in self.remarks]
        return [*remarks, *(f"#SBATCH {option}" for option in self.options())]

    def script(self, body: Sequence[str]) -> str:
        """Return the whole script."""
        return "\n".join(["#!/bin/bash", *self.lines(), *body, ""])


def array_script(
    plan: Plan, tasks: Sequence[Task], request: Request, job_name: str, files: ArrayFiles
) -> str:
    """Return the script of an array with a task for each of ``tasks``, numbered from 1."""
    each = (
        f"{request.cpus} CPUs, {format_seconds(request.walltime_s)}, "
        f"{format_bytes(request.memory_bytes)}"
    )
    remark = f"{plan.app.name}: {len(tasks)} tasks, each {each}; M of --mem is 2^20 bytes"
    # A task that was preempted is submitted again, as another job.
    further = (*plan.slurm.options(), "--no-requeue")
    per_cpu = request.partition in plan.slurm.memory_per_cpu
    job = Job(job_name, request, (remark,), per_cpu, len(tasks), plan.slurm.throttle, further)
    variables = environment(_configuration_of(plan, request)) | {
        CPUS_VARIABLE: str(request.cpus), MEMORY_VARIABLE: str(request.memory_bytes)
    }  # fmt: skip
    return job.script([
        "set -eu",
        f". {shlex.quote(str(files.task_list))}",
        f'folder={shlex.quote(str(files.work))}-"$SLURM_ARRAY_TASK_ID"',
        'rm -rf -- "$folder"',
        f'mkdir -p -- "$folder/{OUT_NAME}"',
        # The machine, for the history; no failure of these lines ends the job.
        "{",
        *_MACHINE_LINES,
        *([_GPU_LINE] if request.gpus else []),
        f'}} > "$folder/{MACHINE_FILE}" || true',
        "task_$SLURM_ARRAY_TASK_ID",
        *staging_lines(plan.app, plan.container_engine),
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        f'cd -- "$folder/{OUT_NAME}"',
        'exec "${command[@]}"',
    ])  # fmt: skip


def task_list(plan: Plan, tasks: Sequence[Task], request: Request, files: ArrayFiles) -> str:
    """Return the functions ``task_1``, ``task_2`` and so on, which set ``image`` and ``command``.

    Raises
    ------
    ConfigError
        If the command line of the application has an unknown placeholder.
    """
    functions, configuration = [], _configuration_of(plan, request)
    for number, task in enumerate(tasks, 1):
        image = Path(task.image) if task.image else None
        out = files.attempt_folder(number) / OUT_NAME
        words = command(plan.app, image, out, configuration, plan.parameters)
        functions.append(
            f"task_{number}() {{\n"
            f"image={shlex.quote(task.image)}\n"
            f"command=({shlex.join(words)})\n"
            "}\n"
        )
    return "".join(functions)


def _configuration_of(plan: Plan, request: Request) -> Configuration:
    """Return the allocation of an attempt as the application sees it."""
    return Configuration(
        request.device, request.cpus, request.gpus, request.memory_bytes, request.partition,
        plan.container_engine if plan.app.container else "none",
    )  # fmt: skip


def follow_up_script(submission: Submission, partition: str, jobs: Sequence[str]) -> str:
    """Return the script of a small job that follows a submission after the first of ``jobs``.

    It does one step and submits its successor, until no task has an attempt left.
    """
    plan = submission.plan
    request = Request(FOLLOW_UP.walltime_s, FOLLOW_UP.memory_bytes, partition=partition)
    name = f"{plan.app.name}-{submission.label}-follow"
    per_cpu = partition in plan.slurm.memory_per_cpu
    dependency = "--dependency=" + "?".join(f"afterany:{job}" for job in jobs)
    job = Job(
        name, request, ("follows a submission of voxcast",), per_cpu,
        further=(*plan.slurm.options(), dependency),
    )  # fmt: skip
    words = [sys.executable, "-m", "voxcast.cli", "submit", "--detach", "--out"]
    return job.script([f"exec {shlex.join([*words, str(submission.folder)])}"])


def staging_lines(app: App, container_engine: str) -> list[str]:
    """Return the lines that lay out the folders of a run like `voxcast.apps.containers.staged`.

    They expect ``image`` and ``folder``.
    """
    hosts = set(app.binds.values()) if app.container else set()
    lines = ['name="${image##*/}"']
    if SCRATCH in hosts:
        lines.append('mkdir -p -- "$folder/scratch"')
    if INPUTS in hosts:
        lines.append('mkdir -p -- "$folder/inputs"')
        lines += _stage('"$folder/inputs/$name"', container_engine)
    if BIDS in hosts or reads_bids(app):
        anat = f'"$folder/{bids_folder(Path("x")).name}/sub-01/anat"'
        lines += [
            f"mkdir -p -- {anat}",
            f'printf "%s\\n" {shlex.quote(_DATASET)} > "$folder/bids/{DATASET_FILE}"',
            'suffix=.nii; case "$name" in *.nii.gz) suffix=.nii.gz ;; esac',
            *_stage(f'{anat}/"sub-01_T1w$suffix"', container_engine),
        ]
    return lines if len(lines) > 1 else []


def _stage(target: str, container_engine: str) -> list[str]:
    """Return the lines that link or copy the image; see `voxcast.apps.containers.staged`."""
    copied = f'cp -L -- "$image" {target}'
    if container_engine in WRITES_THROUGH:
        return [copied]
    return [f'ln -L -- "$image" {target} 2>/dev/null || {copied}']


def machine_of(facts: HostFacts) -> dict[str, str]:
    """Return the columns of the history that name a machine."""
    from voxcast.measure.host import host_class

    return {
        "host_id": facts.host_id, "host_class": host_class(facts), "cpu_model": facts.cpu_model
    }  # fmt: skip


def read_machine(folder: Path) -> dict[str, str]:
    """Return `machine_of` from the file that the script wrote, so that nodes need no voxcast.

    It is empty if the job ended before that.
    """
    from voxcast.measure.host import HostFacts, cpu_model, host_id

    path = folder / MACHINE_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    lines = [line.strip().partition(" ")[::2] for line in text.splitlines()]
    fields, gpus = dict(lines), tuple(value for name, value in lines if name == "gpu")
    if not fields.get("name") or not fields.get("cores", "").isdecimal():
        return {}
    model = cpu_model(text)
    identity = host_id(fields["name"], fields.get("machine_id", ""), model)
    cores, hostname = int(fields["cores"]), fields["name"]
    return machine_of(HostFacts(model, cores, 0, gpus, "", hostname, identity))


def _printable(remark: str) -> str:
    """Return a remark on one line, without the characters that a terminal would obey."""
    line = " ".join(remark.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def arrays_of(
    requests: Mapping[str, Request],
    *,
    array_core_h: float = ARRAY_CORE_H,
    max_tasks: int = MAX_TASKS,
) -> list[Array]:
    """Return the arrays of tasks of the same partition, device, CPUs and GPUs.

    The longest come first, as then all end soonest.

    Parameters
    ----------
    requests : mapping of str to Request
        By name of the task.
    array_core_h : float
        Price of an array, in core-hours requested. With a price of 0 only equal requests share.
    """
    alike: dict[Request, list[str]] = {}
    for name, request in requests.items():
        alike.setdefault(replace(request, walltime_s=0.0, memory_bytes=0), []).append(name)
    arrays = []
    for kind, names in alike.items():
        names.sort(key=lambda name: (requests[name].walltime_s, requests[name].memory_bytes))
        sizes = np.array([(requests[n].walltime_s, requests[n].memory_bytes) for n in names])
        for start, end in _groups(sizes, kind.cpus, array_core_h):
            walltime_s, memory_bytes = sizes[start:end].max(axis=0).tolist()
            largest = replace(kind, walltime_s=walltime_s, memory_bytes=int(memory_bytes))
            for first in range(start, end, max_tasks):
                listed = names[first : min(first + max_tasks, end)]
                arrays.append(Array(largest, tuple(reversed(listed))))
    return sorted(arrays, key=lambda array: -array.request.walltime_s)


def core_h(request: Request) -> float:
    """Return the core-hours that a request reserves; 4 GB count as a core where that is more."""
    return float(_core_h(request.walltime_s, request.memory_bytes, request.cpus))


def _core_h(walltime_s: float, memory_bytes: Any, cpus: int) -> Any:
    return np.maximum(cpus, memory_bytes / 1e9 / GB_PER_CORE) * walltime_s / 3600


def _groups(
    sizes: NDArray[np.float64], cpus: int, array_core_h: float
) -> Iterator[tuple[int, int]]:
    """Yield first and last, exclusive, of each group of least cost, the longest tasks first.

    Parameters
    ----------
    sizes : ndarray, shape (tasks, 2)
        Time in seconds and memory in bytes, in increasing order.
    """
    levels, counts = np.unique(sizes, axis=0, return_counts=True)
    ends = np.concatenate([[0], counts.cumsum()])  # tasks below each level
    least, starts = np.zeros(len(ends)), np.zeros(len(ends), dtype=int)
    for end in range(1, len(ends)):
        # Groups of the levels start..end-1, for each start; of equally good ones the smallest.
        largest = np.maximum.accumulate(levels[:end, 1][::-1])[::-1]
        tasks = ends[end] - ends[:end]
        cost = least[:end] + tasks * _core_h(levels[end - 1, 0], largest, cpus) + array_core_h
        starts[end] = np.flatnonzero(cost <= cost.min())[-1]
        least[end] = cost[starts[end]]
    end = len(levels)
    while end:
        yield int(ends[starts[end]]), int(ends[end])
        end = int(starts[end])


def babs_block(app: str, array: Array, *, memory_per_cpu: bool = False) -> str:
    """Return ``cluster_resources`` of the configuration of a BABS project, in YAML.

    Its keys are those of BABS for Slurm; what has none is a customized text.
    """
    keyed, others = ['    interpreting_shell: "/bin/bash -l"'], []
    job = Job(app, array.request, memory_per_cpu=memory_per_cpu)
    for option in job.options()[1:]:  # BABS names its jobs itself
        name, _, value = option.partition("=")
        if name in _BABS_KEYS:
            keyed.append(f'    {_BABS_KEYS[name]}: "{value}"')
        else:
            others.append(f"        #SBATCH {option}")
    names = [f"#   {_printable(name)}" for name in sorted(array.names)]
    head = [f"# {counted(len(names), 'image')} of {app}:", *names, "cluster_resources:"]
    return "\n".join([*head, *keyed, "    customized_text: |", *others, ""])


def recommended_job(recommendation: Recommendation) -> Job | None:
    """Return the head of the script for the first image; None without a request or a scheduler."""
    offered = recommendation.offers
    column = int(offered.choice.chosen[0])
    if column < 0 or offered.cluster.is_this_machine:
        return None
    candidate = offered.candidates[column]
    request = Request(
        float(offered.walltime_s[0, column]), int(offered.memory_bytes[0, column]),
        candidate.cpus, candidate.gpus, candidate.partition.name, candidate.configuration.device,
    )  # fmt: skip
    image = recommendation.images[0]
    app, name = image.by_candidate[column]["app"], os.path.basename(image.image)  # noqa: PTH119
    nodes = f"nodes of type {candidate.node.name}, partition {candidate.partition.name}"
    is_sure = image.by_candidate[column]["calibrated"] and not recommendation.unmeasured(column)
    remarks = (
        f"{app} on {name}: {candidate.configuration.label}; {nodes}",
        *recommendation.caveats(0),
        *([offered.policy.risk_text] if is_sure else []),
        recommendation.machine(),
        "M of --mem is 2^20 bytes",
    )
    return Job(app, request, remarks, candidate.partition.memory_per_cpu)


def command_script(recommendation: Recommendation) -> str:
    """Return a script that takes its command from the command line of ``sbatch``.

    It is empty as `recommended_job` is.
    """
    job = recommended_job(recommendation)
    if job is None:
        return ""
    usage = "usage: sbatch FILE.sbatch COMMAND..."
    refusal = f"[ $# -gt 0 ] || {{ echo {shlex.quote(usage)} >&2; exit 2; }}"
    return job.script([f"# {usage}", "set -eu", refusal, _THREADS, 'exec "$@"'])
