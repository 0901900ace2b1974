"""Texts for ``sbatch``: a job, an array, workers, and the job that follows a submission.

The tasks of an array are a file of shell functions, one a task, which its script reads. Every word
that a user or a file name decides passes `shlex.quote`; nothing is expanded twice.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.app import THREAD_VARIABLES, command, environment
from voxcast.apps.containers import WRITES_THROUGH
from voxcast.apps.staging import BIDS, DATASET_FILE, INPUTS, SCRATCH, bids_folder, reads_bids
from voxcast.errors import ConfigError
from voxcast.jobs.submission import OUT_NAME
from voxcast.quantities import format_bytes, format_seconds, memory_option, slurm_clock
from voxcast.records import Configuration, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.jobs.submission import ArrayFiles, Plan, Submission
    from voxcast.jobs.task import Task
    from voxcast.measure.host import HostFacts
    from voxcast.records import App

CPUS_VARIABLE, MEMORY_VARIABLE = "VOXCAST_CPUS", "VOXCAST_MEMORY_BYTES"
MACHINE_FILE = "machine"  # in the folder of an attempt
FOLLOW_UP = Request(600.0, 10**9)
FOLLOW_UP_MODULE = "voxcast.cli.submit"
MAX_TASKS = 1000  # of an array, unless a site raises MaxArraySize
_DATASET = '{"Name": "one image", "BIDSVersion": "1.10.0"}'
_NAME = re.compile(r"[^\w.-]+")
_END = "END_OF_IMAGES"
_OF_A_LINE = ("--array", "--cpus-per-task", "--mem", "--time", "--gres", "--partition")
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
        partition = _NAME.sub("_", request.partition)
        options = [
            f"--job-name={_NAME.sub('_', self.name)}",
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


def command_script(job: Job, images: Sequence[str]) -> str:
    """Return a script that takes its command from the command line of ``sbatch``.

    In an array, ``{image}`` of the command stands for the image of a task.

    Parameters
    ----------
    images : sequence of str
        Absolute paths of the tasks of an array.

    Raises
    ------
    ConfigError
        If there are more than `MAX_TASKS` images, or a name has a line break.
    """
    if len(images) > MAX_TASKS:
        raise ConfigError(
            f"{len(images)} images are more than the {MAX_TASKS} tasks of an array",
            "--slurm", "write several with --slurm-into DIR",
        )  # fmt: skip
    for image in images if job.tasks else ():
        if "\n" in image or "\r" in image:
            raise ConfigError("has a line break in its name", repr(image), "rename it")
    usage, body = "usage: sbatch FILE.sbatch COMMAND...", [_THREADS, 'exec "$@"']
    if job.tasks:
        usage += ", with {image} where the image belongs"
        body = [
            f"image=$(sed -n \"${{SLURM_ARRAY_TASK_ID}}p\" <<'{_END}'",
            *images,
            _END,
            ")",
            _THREADS,
            "shopt -u patsub_replacement 2>/dev/null || true  # a & in a name is only a &",
            'exec "${@//\\{image\\}/$image}"',
        ]
    refusal = f"[ $# -gt 0 ] || {{ echo {shlex.quote(usage)} >&2; exit 2; }}"
    return job.script([f"# {usage}", "set -eu", refusal, *body])


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
    variables = task_variables(configuration_of(plan, request), request)
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
    functions = []
    for number, task in enumerate(tasks, 1):
        words = task_command(plan, task, request, files.attempt_folder(number))
        functions.append(
            f"task_{number}() {{\n"
            f"image={shlex.quote(task.image)}\n"
            f"command=({shlex.join(words)})\n"
            "}\n"
        )
    return "".join(functions)


def task_command(plan: Plan, task: Task, request: Request, folder: Path) -> list[str]:
    """Return the command line of an attempt that works in ``folder``."""
    image = Path(task.image) if task.image else None
    configuration = configuration_of(plan, request)
    return command(plan.app, image, folder / OUT_NAME, configuration, plan.parameters)


def configuration_of(plan: Plan, request: Request) -> Configuration:
    """Return the allocation of an attempt as the application sees it."""
    return Configuration(
        request.device, request.cpus, request.gpus, request.memory_bytes, request.partition,
        plan.container_engine if plan.app.container else "none",
    )  # fmt: skip


def task_variables(configuration: Configuration, request: Request) -> dict[str, str]:
    """Return the variables that describe its allocation to an application."""
    return {
        **environment(configuration),
        CPUS_VARIABLE: str(request.cpus),
        MEMORY_VARIABLE: str(request.memory_bytes),
    }


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
    words = [sys.executable, "-m", FOLLOW_UP_MODULE, "--detach", "--resume"]
    return job.script([f"exec {shlex.join([*words, str(submission.folder)])}"])


def array_line(
    command: Sequence[str],
    request: Request,
    count: int,
    partition: str | None = None,
    *,
    per_cpu: bool = False,
) -> str:
    """Return a line for a shell that starts ``count`` jobs of a command as an array of Slurm."""
    job = Job("", replace(request, partition=partition or ""), (), per_cpu, count)
    options = [o for name in _OF_A_LINE for o in job.options() if o.startswith(name)]
    return shlex.join(["sbatch", *options, f"--wrap=exec {shlex.join(command)}"])


def staging_lines(app: App, container_engine: str) -> list[str]:
    """Return the lines that lay out the folders of a run, as `voxcast.apps.staging.staged` does.

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
    """Return the lines that link or copy the image; see `voxcast.apps.staging.staged_inputs`."""
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

    try:
        text = (folder / MACHINE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        fields.setdefault(name, []).append(value.strip())
    hostname, number, cores = (fields.get(n, [""])[0] for n in ("name", "machine_id", "cores"))
    if not hostname or not cores.isdecimal():
        return {}
    model, gpus = cpu_model(text), tuple(fields.get("gpu", ()))
    identity = host_id(hostname, number, model)
    return machine_of(HostFacts(model, int(cores), 0, gpus, "", hostname, identity))


def _printable(remark: str) -> str:
    """Return a remark on one line, without the characters that a terminal would obey."""
    line = " ".join(remark.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)
