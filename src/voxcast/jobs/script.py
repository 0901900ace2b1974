"""Texts for ``sbatch``: a job, an array, workers, and the job that follows a submission.

The tasks of an array are a file of shell functions, one a task, which its script reads. Every word
that a user or a file name decides passes `shlex.quote`; nothing is expanded twice.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.app import THREAD_VARIABLES, command, environment
from voxcast.apps.containers import WRITES_THROUGH
from voxcast.apps.staging import BIDS, DATASET_FILE, INPUTS, SCRATCH, bids_folder, reads_bids
from voxcast.errors import ConfigError
from voxcast.jobs.submission import OUT_NAME
from voxcast.measure.host import HostFacts, cpu_model, host_class, host_id
from voxcast.quantities import format_bytes, format_seconds, memory_option, slurm_clock
from voxcast.records import Configuration, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.jobs.submission import ArrayFiles, Plan, Submission
    from voxcast.jobs.task import Task
    from voxcast.records import App

CPUS_VARIABLE, MEMORY_VARIABLE = "VOXCAST_CPUS", "VOXCAST_MEMORY_BYTES"
MACHINE_FILE = "machine"  # in the folder of an attempt
FOLLOW_UP = Request(600.0, 10**9)
FOLLOW_UP_MODULE = "voxcast.cli.submit"
MAX_TASKS = 1000  # of an array, unless a site raises MaxArraySize
_DATASET = '{"Name": "one image", "BIDSVersion": "1.10.0"}'
_NAME = re.compile(r"[^\w.-]+")
_END = "END_OF_IMAGES"
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
    """

    name: str
    request: Request
    remarks: tuple[str, ...] = ()
    memory_per_cpu: bool = False

    def options(self, tasks: int | None = None, throttle: int | None = None) -> list[str]:
        """Return the options of ``sbatch``.

        Parameters
        ----------
        tasks : int, optional
            Number of tasks of an array.
        throttle : int, optional
            How many of them may run at a time.
        """
        request = self.request
        options = [
            f"--job-name={_NAME.sub('_', self.name)}",
            f"--partition={_NAME.sub('_', request.partition)}",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={request.cpus}",
            f"--time={slurm_clock(request.walltime_s)}",
            memory_option(request.memory_bytes, request.cpus, per_cpu=self.memory_per_cpu),
        ]
        if request.gpus:
            options.insert(5, f"--gres=gpu:{request.gpus}")
        if tasks is not None:
            at_a_time = "" if throttle is None else f"%{throttle}"
            options.append(f"--array=1-{tasks}{at_a_time}")
        return options

    def lines(self, tasks: int | None = None, throttle: int | None = None) -> list[str]:
        """Return the comments and the ``#SBATCH`` lines; parameters as of `options`."""
        remarks = [f"# {_printable(remark)}" for remark in self.remarks]
        return [*remarks, *(f"#SBATCH {option}" for option in self.options(tasks, throttle))]

    def job_script(self) -> str:
        """Return the script of a job, which takes its command from the line of ``sbatch``."""
        body = _usage("usage: sbatch FILE.sbatch COMMAND...")
        return _script([*self.lines(), *body, _THREADS, 'exec "$@"'])

    def array_script(self, images: Sequence[str], list_file: Path | None = None) -> str:
        """Return the script of an array job with a task for each image.

        It takes its command from the command line of ``sbatch``, in which ``{image}`` stands for
        the image of a task.

        Parameters
        ----------
        images : sequence of str
            Absolute paths.
        list_file : Path, optional
            File with these paths, see `image_list`; by default the script holds them.

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
        listed = image_list(images)
        name = "FILE.sbatch" if list_file is None else list_file.with_suffix(".sbatch").name
        line = 'sed -n "${SLURM_ARRAY_TASK_ID}p"'
        if list_file is None:
            image = f"image=$({line} <<'{_END}'\n{listed}{_END}\n)"
        else:
            image = f"image=$({line} {shlex.quote(str(list_file))})"
        return _script([
            *self.lines(len(images)),
            *_usage(f"usage: sbatch {name} COMMAND..., with {{image}} where the image belongs"),
            image,
            _THREADS,
            "shopt -u patsub_replacement 2>/dev/null || true  # a & in a name is only a &",
            'exec "${@//\\{image\\}/$image}"',
        ])  # fmt: skip


def image_list(images: Sequence[str]) -> str:
    """Return the images, one a line.

    Raises
    ------
    ConfigError
        If a name has a line break.
    """
    for image in images:
        if "\n" in image or "\r" in image:
            raise ConfigError("has a line break in its name", repr(image), "rename it")
    return "".join(f"{image}\n" for image in images)


def array_script(
    plan: Plan, tasks: Sequence[Task], request: Request, job_name: str, files: ArrayFiles
) -> str:
    """Return the script of an array with a task for each of ``tasks``, numbered from 1."""
    each = (
        f"{request.cpus} CPUs, {format_seconds(request.walltime_s)}, "
        f"{format_bytes(request.memory_bytes)}"
    )
    remark = f"{plan.app.name}: {len(tasks)} tasks, each {each}; M of --mem is 2^20 bytes"
    per_cpu = request.partition in plan.slurm.memory_per_cpu
    job = Job(job_name, request, (remark,), per_cpu)
    variables = task_variables(configuration_of(plan, request), request)
    return _script([
        *job.lines(len(tasks), plan.slurm.throttle),
        *(f"#SBATCH {option}" for option in plan.slurm.options()),
        "#SBATCH --no-requeue",  # a task that was preempted is submitted again as another job
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
    job = Job(name, request, ("follows a submission of voxcast",), per_cpu)
    words = [sys.executable, "-m", FOLLOW_UP_MODULE, "--detach", "--resume"]
    return _script([
        *job.lines(),
        *(f"#SBATCH {option}" for option in plan.slurm.options()),
        f"#SBATCH --dependency={'?'.join(f'afterany:{job}' for job in jobs)}",
        f"exec {shlex.join([*words, str(submission.folder)])}",
    ])  # fmt: skip


def array_line(
    command: Sequence[str],
    request: Request,
    count: int,
    partition: str | None = None,
    *,
    per_cpu: bool = False,
) -> str:
    """Return a line for a shell that starts ``count`` jobs of a command as an array of Slurm."""
    options = [
        f"--array=1-{count}", f"--cpus-per-task={request.cpus}",
        memory_option(request.memory_bytes, request.cpus, per_cpu=per_cpu),
        f"--time={slurm_clock(request.walltime_s)}",
    ]  # fmt: skip
    options += [f"--gres=gpu:{request.gpus}"] if request.gpus else []
    options += [] if partition is None else [f"--partition={partition}"]
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


@dataclass(frozen=True)
class Machine:
    """The machine of an attempt as the history names it; empty where unknown."""

    host_id: str = ""
    host_class: str = ""
    cpu_model: str = ""

    @classmethod
    def of(cls, facts: HostFacts) -> Machine:
        """Return the machine with these facts."""
        return cls(facts.host_id, host_class(facts), facts.cpu_model)


def read_machine(folder: Path) -> Machine:
    """Return the machine from the file that the script wrote, so that nodes need no voxcast.

    It is unknown if the job ended before that.
    """
    try:
        text = (folder / MACHINE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Machine()
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        fields.setdefault(name, []).append(value.strip())
    hostname, cores = (fields.get(name, [""])[0] for name in ("name", "cores"))
    if not hostname or not cores.isdecimal():
        return Machine()
    model, number = cpu_model(text), fields.get("machine_id", [""])[0]
    facts = HostFacts(
        model, int(cores), 0, tuple(fields.get("gpu", ())), "", hostname,
        host_id(hostname, number, model),
    )  # fmt: skip
    return Machine.of(facts)


def _script(lines: Sequence[str]) -> str:
    return "\n".join(["#!/bin/bash", *lines, ""])


def _printable(remark: str) -> str:
    """Return a remark on one line, without the characters that a terminal would obey."""
    line = " ".join(remark.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _usage(usage: str) -> list[str]:
    refusal = f"[ $# -gt 0 ] || {{ echo {shlex.quote(usage)} >&2; exit 2; }}"
    return [f"# {usage}", "set -eu", refusal]
