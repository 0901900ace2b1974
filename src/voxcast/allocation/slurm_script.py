"""Requests as Slurm takes them: ``#SBATCH`` lines for a job, and a script for an array job.

The script of an array takes its command from the command line of ``sbatch``, where ``{image}``
stands for the image of a task. Images are one line each of a list, in a file or in the script.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.apps.app import THREAD_VARIABLES
from voxcast.errors import ConfigError
from voxcast.quantities import slurm_clock, slurm_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.allocation.assessment import Assessment
    from voxcast.allocation.site import Candidate

MAX_TASKS = 1000  # of an array, unless a site raises MaxArraySize
_NAME = re.compile(r"[^\w.-]+")
_END = "END_OF_IMAGES"
_THREADS = "export " + " ".join(f'{name}="$SLURM_CPUS_PER_TASK"' for name in THREAD_VARIABLES)


def memory_option(memory_bytes: float, cpus: int, *, per_cpu: bool = False) -> str:
    """Return the option of ``sbatch`` that requests memory.

    Examples
    --------
    >>> memory_option(3 * 2**30, 6), memory_option(3 * 2**30, 6, per_cpu=True)
    ('--mem=3072M', '--mem-per-cpu=512M')
    """
    if per_cpu:
        return f"--mem-per-cpu={slurm_memory(memory_bytes / cpus)}"
    return f"--mem={slurm_memory(memory_bytes)}"


@dataclass(frozen=True)
class SlurmRequest:
    """One request.

    Attributes
    ----------
    job : str
        Name of the job.
    remarks : tuple of str
        Comments above the lines.
    memory_per_cpu : bool
        The partition takes ``--mem-per-cpu`` instead of ``--mem``.
    """

    job: str
    partition: str
    cpus: int
    gpus: int
    walltime_s: float
    memory_bytes: float
    remarks: tuple[str, ...] = ()
    memory_per_cpu: bool = False

    @classmethod
    def of(
        cls,
        job: str,
        candidate: Candidate,
        assessment: Assessment,
        image: int,
        column: int,
        remarks: Sequence[str] = (),
    ) -> SlurmRequest:
        """Return the request of a candidate for an image."""
        return cls(
            job, candidate.partition.name, candidate.cpus, candidate.gpus,
            float(assessment.walltime_s[image, column]),
            float(assessment.memory_bytes[image, column]),
            tuple(remarks),
            candidate.partition.memory_per_cpu,
        )  # fmt: skip

    def options(self, tasks: int | None = None, throttle: int | None = None) -> list[str]:
        """Return the options of ``sbatch``.

        Parameters
        ----------
        tasks : int, optional
            Number of tasks of an array.
        throttle : int, optional
            How many of them may run at a time.
        """
        options = [
            f"--job-name={_NAME.sub('_', self.job)}",
            f"--partition={_NAME.sub('_', self.partition)}",
            "--nodes=1",
            "--ntasks=1",
            f"--cpus-per-task={self.cpus}",
            f"--time={slurm_clock(self.walltime_s)}",
            memory_option(self.memory_bytes, self.cpus, per_cpu=self.memory_per_cpu),
        ]
        if self.gpus:
            options.insert(5, f"--gres=gpu:{self.gpus}")
        if tasks is not None:
            at_a_time = "" if throttle is None else f"%{throttle}"
            options.append(f"--array=1-{tasks}{at_a_time}")
        return options

    def lines(self, tasks: int | None = None, throttle: int | None = None) -> list[str]:
        """Return the comments and the ``#SBATCH`` lines; parameters as of `options`."""
        remarks = [f"# {_printable(remark)}" for remark in self.remarks]
        return [*remarks, *(f"#SBATCH {option}" for option in self.options(tasks, throttle))]

    def job_script(self) -> str:
        """Return the script of a job, which takes its command from that of ``sbatch``."""
        body = _start("usage: sbatch FILE.sbatch COMMAND...")
        return "\n".join(["#!/bin/bash", *self.lines(), *body, _THREADS, 'exec "$@"']) + "\n"

    def array_script(self, images: Sequence[str], list_file: Path | None = None) -> str:
        """Return the script of an array job with a task for each image.

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
        usage = f"usage: sbatch {name} COMMAND..., with {{image}} where the image belongs"
        line = 'sed -n "${SLURM_ARRAY_TASK_ID}p"'
        if list_file is None:
            image = f"image=$({line} <<'{_END}'\n{listed}{_END}\n)"
        else:
            image = f"image=$({line} {shlex.quote(str(list_file))})"
        body = [
            *_start(usage),
            image,
            _THREADS,
            "shopt -u patsub_replacement 2>/dev/null || true  # a & in a name is only a &",
            'exec "${@//\\{image\\}/$image}"',
        ]
        return "\n".join(["#!/bin/bash", *self.lines(len(images)), *body]) + "\n"


def _printable(remark: str) -> str:
    """Return a remark on one line, without the characters that a terminal would obey."""
    line = " ".join(remark.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _start(usage: str) -> list[str]:
    refusal = f"[ $# -gt 0 ] || {{ echo {shlex.quote(usage)} >&2; exit 2; }}"
    return [f"# {usage}", "set -eu", refusal]


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
