"""The script of an array job, and the list of its tasks: pure text.

The list is a file of shell functions, one a task, which the script reads. Every word that a user
or a file name decides passes `shlex.quote`; nothing is expanded twice.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.allocation.slurm_script import SlurmRequest
from voxcast.apps.app import command, environment
from voxcast.apps.containers import WRITES_THROUGH
from voxcast.apps.staging import BIDS, DATASET_FILE, INPUTS, SCRATCH, bids_folder, reads_bids
from voxcast.hpc.machine_facts import script_lines
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.hpc.attempts import Request
    from voxcast.hpc.plan import Plan
    from voxcast.hpc.tasks import Task
    from voxcast.records import App

OUT_NAME = "out"  # of the folder of results, in the folder of an attempt
CPUS_VARIABLE, MEMORY_VARIABLE = "VOXCAST_CPUS", "VOXCAST_MEMORY_BYTES"
_DATASET = '{"Name": "one image", "BIDSVersion": "1.10.0"}'


@dataclass(frozen=True)
class ArrayFiles:
    """Where an array job finds and leaves its files.

    Attributes
    ----------
    task_list : Path
        File of the functions of its tasks.
    work : Path
        Task N works in the folder ``work-N``.
    log : str
        Pattern of ``--output``, in which ``%a`` is the number of a task.
    """

    task_list: Path
    work: Path
    log: str

    @property
    def log_stem(self) -> Path:
        """Log of task N without ``-N.log``."""
        return Path(self.log.replace("%%", "%").removesuffix("-%a.log"))

    def attempt_folder(self, number: int) -> Path:
        """Return the folder of the attempt of a task, numbered from 1."""
        return self.work.with_name(f"{self.work.name}-{number}")


def configuration_of(plan: Plan, task: Task, request: Request) -> Configuration:
    """Return the allocation of an attempt as the application gets to know it."""
    return Configuration(
        task.device, request.cpus, request.gpus, request.memory_bytes, task.partition,
        plan.container_engine if plan.app.container else "none",
    )  # fmt: skip


def task_variables(configuration: Configuration, request: Request) -> dict[str, str]:
    """Return the variables by which an application gets to know its allocation."""
    return {
        **environment(configuration),
        CPUS_VARIABLE: str(request.cpus),
        MEMORY_VARIABLE: str(request.memory_bytes),
    }


def array_script(
    plan: Plan, tasks: Sequence[Task], request: Request, job_name: str, files: ArrayFiles
) -> str:
    """Return the script of an array with a task for each of ``tasks``, numbered from 1."""
    first = tasks[0]
    each = (
        f"{request.cpus} CPUs, {format_seconds(request.walltime_s)}, "
        f"{format_bytes(request.memory_bytes)}"
    )
    slurm = SlurmRequest(
        job_name, first.partition, request.cpus, request.gpus, request.walltime_s,
        request.memory_bytes,
        (f"{plan.app.name}: {len(tasks)} tasks, each {each}; M of --mem is 2^20 bytes",),
    )  # fmt: skip
    variables = task_variables(configuration_of(plan, first, request), request)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([
        "#!/bin/bash",
        *slurm.lines(len(tasks), plan.slurm.throttle),
        *(f"#SBATCH {option}" for option in plan.slurm.options()),
        "#SBATCH --no-requeue",  # a task that was preempted is submitted again as another job
        "set -eu",
        f". {shlex.quote(str(files.task_list))}",
        f'folder={shlex.quote(str(files.work))}-"$SLURM_ARRAY_TASK_ID"',
        'rm -rf -- "$folder"',
        f'mkdir -p -- "$folder/{OUT_NAME}"',
        *script_lines(request.gpus),
        "task_$SLURM_ARRAY_TASK_ID",
        *staging_lines(plan.app, plan.container_engine),
        *exports,
        f'cd -- "$folder/{OUT_NAME}"',
        'exec "${command[@]}"',
        "",
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
    configuration = configuration_of(plan, task, request)
    return command(plan.app, image, folder / OUT_NAME, configuration, plan.parameters)


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
