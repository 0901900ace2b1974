"""The script of an array of packed jobs: pure text.

Each task is a step of its job, started by ``srun`` with limits, log and accounting of its own.
Lanes run side by side, and a lane goes on after a task that failed.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from voxcast.allocation.slurm_script import SlurmRequest
from voxcast.hpc.job_script import (
    OUT_NAME,
    configuration_of,
    staging_lines,
    task_command,
    task_variables,
)
from voxcast.hpc.machine_facts import script_lines
from voxcast.quantities import slurm_clock, slurm_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.hpc.attempts import Request
    from voxcast.hpc.job_script import ArrayFiles
    from voxcast.hpc.plan import Plan
    from voxcast.hpc.tasks import Task

    Packs = Sequence[Sequence[Sequence[int]]]

STEP_PREFIX = "task-"  # of the name of a step


def pack_script(
    plan: Plan, first: Task, request: Request, packs: Packs, job_name: str, files: ArrayFiles
) -> str:
    """Return the script of an array with a job for each of ``packs``, numbered from 1.

    Parameters
    ----------
    first : Task
        Any of the tasks: what its jobs have in common is read from it.
    request : Request
        Of each job.
    """
    count = sum(len(lane) for pack in packs for lane in pack)
    slurm = SlurmRequest(
        job_name, first.partition, request.cpus, 0, request.walltime_s, request.memory_bytes,
        (f"{plan.app.name}: {count} tasks in {len(packs)} jobs; M of --mem is 2^20 bytes",),
    )  # fmt: skip
    log = shlex.quote(files.log.removesuffix("-%a.log"))  # a % of a folder is doubled in it
    return "\n".join([
        "#!/bin/bash",
        *slurm.lines(len(packs), plan.slurm.throttle),
        *(f"#SBATCH {option}" for option in plan.slurm.options()),
        "#SBATCH --no-requeue",  # tasks that were preempted are submitted again in other jobs
        f". {shlex.quote(str(files.task_list))} || exit",
        "run() {",  # in a shell of its own, which ends at the first error
        "set -eu",
        # What fails before the step goes to the task's log, what srun says to that of the job.
        f'exec 3>&2 2> {shlex.quote(str(files.log_stem))}-"$1".log',
        f'folder={shlex.quote(str(files.work))}-"$1"',
        'rm -rf -- "$folder"',
        f'mkdir -p -- "$folder/{OUT_NAME}"',
        *script_lines(0),
        '"task_$1"',
        *staging_lines(plan.app, plan.container_engine),
        f'cd -- "$folder/{OUT_NAME}"',
        f'step=(--exact --ntasks=1 --job-name={STEP_PREFIX}"$1" --output={log}-"$1".log)',
        'exec srun "${step[@]}" "${limits[@]}" "${command[@]}" < /dev/null 2>&3 3>&-',
        "}",
        "lane() {",
        'local number; for number; do (run "$number"); done',
        "}",
        "pack_$SLURM_ARRAY_TASK_ID",
        "exit 0",  # tasks are told by their steps
        "",
    ])  # fmt: skip


def pack_list(
    plan: Plan,
    tasks: Sequence[Task],
    requests: Sequence[Request],
    packs: Packs,
    files: ArrayFiles,
) -> str:
    """Return the functions of tasks, ``task_1`` and so on, and of jobs, ``pack_1`` and so on.

    Raises
    ------
    ConfigError
        If the command line of the application has an unknown placeholder.
    """
    functions = []
    for number, (task, request) in enumerate(zip(tasks, requests, strict=True), 1):
        words = task_command(plan, task, request, files.attempt_folder(number))
        variables = task_variables(configuration_of(plan, task, request), request)
        limits = [
            f"--cpus-per-task={request.cpus}", f"--mem={slurm_memory(request.memory_bytes)}",
            f"--time={slurm_clock(request.walltime_s)}",
        ]  # fmt: skip
        functions.append(
            f"task_{number}() {{\n"
            f"image={shlex.quote(task.image)}\n"
            f"command=({shlex.join(words)})\n"
            f"limits=({shlex.join(limits)})\n"
            + "".join(f"export {name}={shlex.quote(v)}\n" for name, v in variables.items())
            + "}\n"
        )
    for number, pack in enumerate(packs, 1):
        lanes = "".join(f"lane {' '.join(map(str, lane))} &\n" for lane in pack)
        functions.append(f"pack_{number}() {{\n{lanes}wait\n}}\n")
    return "".join(functions)
