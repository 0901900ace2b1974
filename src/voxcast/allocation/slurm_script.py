"""Requests as Slurm takes them: ``#SBATCH`` lines for a job, and a script for an array job.

The script of an array takes its command from the command line of ``sbatch``, where ``{image}``
stands for the image of a task. Images are one line each of a list, in a file or in the script.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.offers import Offers, Predictions, offers
from voxcast.allocation.recommendation import caveats, input_lines
from voxcast.apps.app import THREAD_VARIABLES
from voxcast.errors import ConfigError
from voxcast.files import write_text
from voxcast.quantities import slurm_clock, slurm_memory

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.allocation.recommendation import Recommendation

MAX_LISTED = 3  # tasks in a comment
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
        cls, job: str, offered: Offers, image: int, column: int, remarks: Sequence[str] = ()
    ) -> SlurmRequest:
        """Return the request of a candidate for an image."""
        candidate = offered.candidates[column]
        return cls(
            job, candidate.partition.name, candidate.cpus, candidate.gpus,
            float(offered.walltime_s[image, column]), float(offered.memory_bytes[image, column]),
            tuple(remarks), candidate.partition.memory_per_cpu,
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


@dataclass(frozen=True)
class ArrayGroup:
    """Images that share a request, and so an array job.

    Attributes
    ----------
    images : tuple of int
        Indices of the images.
    column : int
        Index of the candidate.
    offers : Offers
        Of the shared request, with a row for each image of the group.
    """

    images: tuple[int, ...]
    column: int
    offers: Offers


def array_groups(recommendation: Recommendation) -> list[ArrayGroup]:
    """Return groups of all images with a request; each stays within the hard limits.

    Images are grouped where their requests are of one configuration and node type, and differ by
    less than a factor of two in time and memory.
    """
    offered = recommendation.per_image
    members: dict[tuple[int, int, int], list[int]] = {}
    for image, column in enumerate(offered.choice.chosen.tolist()):
        if column >= 0:
            sizes = offered.walltime_s[image, column], offered.memory_bytes[image, column]
            key = (column, *(int(np.ceil(np.log2(size))) for size in sizes))
            members.setdefault(key, []).append(image)
    return [
        group
        for (column, *_), images in sorted(members.items())
        for group in _within_limits(offered, images, column)
    ]


def _within_limits(offered: Offers, images: Sequence[int], column: int) -> Iterator[ArrayGroup]:
    """Yield the images as one group, or as several where a shared request exceeds a limit."""
    rows = np.array(images)
    predictions = Predictions(*(values[rows] for values in vars(offered.predictions).values()))
    shared = offers(
        predictions,
        offered.candidates,
        offered.cluster,
        offered.policy,
        offered.limits,
        shared=True,
    )
    allowed = shared.fits & (shared.excess <= 1)
    if len(images) == 1 or (len(images) <= MAX_TASKS and allowed[:, column].all()):
        yield ArrayGroup(tuple(images), column, shared)
        return
    # The longest half apart from the rest, which may then share a shorter request.
    ordered = rows[np.argsort(offered.walltime_s[rows, column], kind="stable")].tolist()
    for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        yield from _within_limits(offered, half, column)


def slurm_text(recommendation: Recommendation) -> str:
    """Return the ``#SBATCH`` lines of one image, or the script of one array job for several.

    The text is empty where there is no request.

    Raises
    ------
    ConfigError
        If there are too many images for one array.
    """
    if len(recommendation.images) == 1:
        request = _request_of_image(recommendation)
        return "" if request is None else "\n".join(request.lines()) + "\n"
    column = int(recommendation.shared.choice.chosen[0])
    if column < 0:
        return ""
    images = range(len(recommendation.images))
    request = _request(recommendation, recommendation.shared, 0, column, images)
    return request.array_script(_paths(recommendation, images))


def job_script(recommendation: Recommendation) -> str:
    """Return the script of a job on one image; empty where there is no request, or no scheduler.

    Parameters
    ----------
    recommendation : Recommendation
        Of one image.
    """
    if recommendation.cluster.is_this_machine:
        return ""
    request = _request_of_image(recommendation)
    return "" if request is None else request.job_script()


def write_array_jobs(recommendation: Recommendation, folder: Path) -> list[Path]:
    """Write a script and a list of images for each group of similar requests.

    Returns
    -------
    list of Path
        The scripts, ``APP-1.sbatch`` and so on, beside ``APP-1.txt``.

    Raises
    ------
    ConfigError
        If ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is not a folder", folder)
    scripts = []
    for number, group in enumerate(array_groups(recommendation), 1):
        request = _request(recommendation, group.offers, 0, group.column, group.images)
        script = folder / f"{request.job}-{number}.sbatch"
        listed = script.with_suffix(".txt").absolute()
        paths = _paths(recommendation, group.images)
        write_text(listed, image_list(paths))
        write_text(script, request.array_script(paths, listed))
        scripts.append(script)
    return scripts


def _request_of_image(recommendation: Recommendation) -> SlurmRequest | None:
    """Return the request of the only image; None if no candidate qualifies."""
    offered = recommendation.per_image
    column = int(offered.choice.chosen[0])
    return None if column < 0 else _request(recommendation, offered, 0, column, [0])


def _request(
    recommendation: Recommendation,
    offered: Offers,
    row: int,
    column: int,
    images: Sequence[int],
) -> SlurmRequest:
    predictions = [recommendation.images[n].by_candidate[column] for n in images]
    policy, app = recommendation.policy, str(predictions[0]["app"])
    names = [os.path.basename(recommendation.images[n].image) for n in images]  # noqa: PTH119
    inputs = _by_task([input_lines(prediction) for prediction in predictions], names)
    reasons = _by_task([caveats(p, policy.confidence) for p in predictions], names)
    if recommendation.unmeasured(column):
        reasons.append("an allocation that was never measured: time and risk are a guess")
    risk = f"at most {100 * policy.risk:.3g} % of such requests are too small"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    candidate = recommendation.candidates[column]
    nodes = f"nodes of type {candidate.node.name}, partition {candidate.partition.name}"
    remarks = [
        f"{app} on {names[0]}{more}: {candidate.configuration.label}; {nodes}",
        *inputs,
        *(reasons or [risk]),
        recommendation.machine(),
        "M of --mem is 2^20 bytes",
    ]
    return SlurmRequest.of(app, offered, row, column, remarks)


def _by_task(lines_by_task: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Return each line once, with the tasks of an array it is true of, unless of all."""
    tasks: dict[str, list[int]] = {}
    for n, lines in enumerate(lines_by_task):
        for line in lines:
            tasks.setdefault(line, []).append(n)
    return [
        line if len(concerned) == len(names) else f"{_tasks(concerned, names)}: {line}"
        for line, concerned in tasks.items()
    ]


def _tasks(concerned: Sequence[int], names: Sequence[str]) -> str:
    listed = ", ".join(f"{n + 1} ({names[n]})" for n in concerned[:MAX_LISTED])
    more = len(concerned) - MAX_LISTED
    noun = "task" if len(concerned) == 1 else "tasks"
    return f"{noun} {listed}{f' and {more} more' if more > 0 else ''}"


def _paths(recommendation: Recommendation, images: Sequence[int]) -> list[str]:
    return [os.path.abspath(recommendation.images[n].image) for n in images]  # noqa: PTH100
