"""Plans: requests for images, from a model or from a file, and the jobs that make them."""

from __future__ import annotations

import dataclasses
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.allocation.cores import JOB_START_S, with_planned_cpus
from voxcast.api.question import Question, opened
from voxcast.api.submission import Submission, start
from voxcast.apps.app import chosen, scaled_parameters
from voxcast.apps.containers import ENGINES
from voxcast.errors import ConfigError, ImageError
from voxcast.images.sources import find_images, of_participants
from voxcast.jobs.script import Job, arrays_of, babs_block, recommended_job
from voxcast.jobs.submission import (
    VERSION_KEY,
    SlurmOptions,
    existing_outputs,
    partitions_per_cpu,
    read_json_object,
)
from voxcast.jobs.submission import Plan as JobPlan
from voxcast.jobs.task import Limits, Task, from_file, recommended, resources, write_resources
from voxcast.serving.prediction_service import PredictionService

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from voxcast.allocation.recommendation import Recommendation

logger = logging.getLogger(__name__)

BABS_CORE_H = 20.0  # that a project of BABS more must save


@dataclass(frozen=True)
class Plan:
    """Requests for images, as `voxcast.api.model.Model.recommend` returns it.

    Attributes
    ----------
    images : sequence of Path
        All images of the question; the recommendation has the ones that could be predicted.
    volumes : dict
        Header and characteristics of each image by its path.
    """

    question: Question
    images: Sequence[Path]
    recommendation: Recommendation
    volumes: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, question: Question, paths: Sequence[Path], participants: Sequence[str] = ()
    ) -> Plan:
        """Return the plan for images, or for one BIDS dataset or folder.

        Parameters
        ----------
        participants : sequence of str
            Labels of the participants of the dataset; all by default.

        Raises
        ------
        VoxcastError
            If no image can be predicted.
        """
        projects.require(question.project)
        images = _images(paths, participants)
        volumes: dict[str, dict[str, Any]] = {}
        recommendation = question.recommendation(
            images, with_slurm=not question.is_local, volumes=volumes
        )
        if recommendation is None:
            raise ImageError("no image can be predicted", None, "see the lines above")
        return cls(question, images, recommendation, volumes)

    @property
    def table(self) -> pd.DataFrame:
        """One row for each image with its request, and ``why``; empty cells without a request."""
        import pandas as pd

        rows = [
            {
                "image": image["image"],
                "app": image["app"],
                **(image["chosen"] or {}),
                "why": image["why"],
            }
            for image in self.recommendation.as_json()["images"]
        ]
        return pd.DataFrame(rows)

    @property
    def offers(self) -> pd.DataFrame:
        """One row for each image and allocation, with time, cost and whether it is ``chosen``."""
        import pandas as pd

        rows = [
            {"image": image["image"], **offer, "chosen": offer == image["chosen"]}
            for image in self.recommendation.as_json()["images"]
            for offer in image["configurations"]
        ]
        return pd.DataFrame(rows)

    @property
    def is_complete(self) -> bool:
        """Whether each image has a request."""
        all_predicted = len(self.recommendation.images) == len(self.images)
        return all_predicted and not any(self.recommendation.without_request())

    def sbatch(self) -> str:
        """Return the ``#SBATCH`` lines of one image; empty without a request or a scheduler.

        Raises
        ------
        ConfigError
            If there are several images.
        """
        job = self._job()
        return "" if job is None else "\n".join([*job.lines(), ""])

    def sbatch_args(self) -> str:
        """Return the same as options for the command line, which a shell need not quote.

        Raises
        ------
        ConfigError
            If there are several images.
        """
        job = self._job()
        return "" if job is None else " ".join(job.options())

    def babs(self) -> str:
        """Return the block ``cluster_resources`` of BABS for each group of similar images.

        A project of BABS has one block, so each group is a project. A further group saves at least
        `BABS_CORE_H` core-hours of requests. Names of the groups' images are comments.
        """
        by_place, images = recommended(self.recommendation)
        requests = {task.name: task.requests.first for task in by_place.values()}
        per_cpu = partitions_per_cpu(self.recommendation.cluster)
        app = str(images[0]["app"]) if images else ""
        blocks = [
            babs_block(app, array, memory_per_cpu=array.request.partition in per_cpu)
            for array in arrays_of(requests, array_core_h=BABS_CORE_H)
        ]
        return "---\n".join(blocks)

    def _job(self) -> Job | None:
        if len(self.images) > 1:
            then = "`submit` makes arrays of several, or write them as csv"
            raise ConfigError("are for one image", "options of sbatch", then)
        return recommended_job(self.recommendation)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write time and memory of three attempts for each image, for workflow engines."""
        write_resources(resources(self.recommendation), Path(path))

    def jobs(self, nodes: tuple[int, int] | None = None) -> JobPlan:
        """Return the jobs of all images that have a request; images without one are logged.

        Parameters
        ----------
        nodes : tuple of int, optional
            Nodes and cores of a node, for which the CPUs of all images are chosen together.
        """
        recommendation = self.recommendation
        for image, reason in recommendation.without_request():
            logger.error("%s: %s", image, reason)
        by_place, _ = recommended(
            recommendation, lambda content: _with_cores(self.question, nodes, content)
        )
        app = str(recommendation.images[0].by_candidate[0]["app"])
        model = _model_facts(self.question, app)
        tasks = []
        for n, task in by_place.items():
            volume, prediction = self.volumes.get(recommendation.images[n].image), task.prediction
            if prediction is not None:
                prediction = dataclasses.replace(prediction, **model)
            tasks.append(dataclasses.replace(task, volume=volume, prediction=prediction))
        cluster = recommendation.cluster
        return dataclasses.replace(
            _job_plan(self.question, app, tasks, recommendation.parameters, cluster.name),
            slurm=SlurmOptions(memory_per_cpu=partitions_per_cpu(cluster)),
            added_memory_bytes=cluster.stated_bytes_of(app),
        )

    def submit(
        self,
        out: str | os.PathLike[str],
        *,
        sbatch: Sequence[str] = (),
        throttle: int | None = None,
    ) -> Submission:
        """Run the application on the images; return at once.

        Parameters
        ----------
        out : path
            Folder of the results.
        sbatch : sequence of str
            Options of sbatch, ``KEY=VALUE``.
        throttle : int, optional
            Tasks at a time.

        Raises
        ------
        VoxcastError
            If results are there already, or the jobs are refused.
        """
        jobs = ready(self.jobs(), self.question, sbatch, throttle)
        return start(jobs, Path(out), is_local=self.recommendation.cluster.is_this_machine)


def jobs_of_file(path: Path, question: Question, nodes: tuple[int, int] | None) -> JobPlan:
    """Return the jobs of a file, which is a plan or a recommendation.

    Parameters
    ----------
    question : Question
        Its partition replaces the file's; a recommendation may be for another application.
    nodes : tuple of int or None
        See `Plan.jobs`.

    Raises
    ------
    ConfigError
        If the file is neither.
    """
    if question.parameters:
        raise ConfigError("has its parameters", path, "leave out --param")
    content = read_json_object(path)
    if VERSION_KEY in content:
        if nodes is not None:
            raise ConfigError(
                "a plan has its CPUs already", "--nodes",
                "give it where the plan is made, or start from `voxcast recommend --json`",
            )  # fmt: skip
        plan = JobPlan.from_record(content, path)
    else:
        try:
            content = _with_cores(question, nodes, content)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"incomplete: {error!r}", path, "write it again") from None
        name, tasks = from_file(content, path)
        parameters = content.get("parameters")
        if not isinstance(parameters, dict):
            raise ConfigError("parameters must be an object", path, "write it again")
        cluster = str(content.get("cluster", ""))
        plan = _job_plan(question, question.app or name, tasks, parameters, cluster)
    if question.partition is None:
        return plan
    moved = (
        dataclasses.replace(
            task, requests=dataclasses.replace(task.requests, partition=question.partition)
        )
        for task in plan.tasks
    )
    return dataclasses.replace(plan, tasks=tuple(moved))


def ready(
    jobs: JobPlan, question: Question, sbatch: Sequence[str] = (), throttle: int | None = None
) -> JobPlan:
    """Return jobs with the budget of a question and the options of Slurm, all checked.

    Raises
    ------
    VoxcastError
        If an image or a container engine is missing.
    """
    slurm = SlurmOptions.from_texts(sbatch, throttle)
    options = {name: value for name, value in vars(slurm).items() if value}
    engines = ("none", *ENGINES)
    if jobs.app.container and chosen(jobs.container_engine, engines, "container engine") == "none":
        then = "name one in conf/device, e.g. container_engine: apptainer"
        raise ConfigError("needs a container engine, and none is chosen", jobs.app.name, then)
    for task in jobs.tasks:
        if task.image and not Path(task.image).is_file():
            raise ImageError("no such file", task.image)
    return dataclasses.replace(
        jobs,
        limits=Limits() if question.budget_usd is None else Limits(max_usd=question.budget_usd),
        slurm=dataclasses.replace(jobs.slurm, **options),
    )


def left_to_do(jobs: JobPlan, out: Path) -> JobPlan:
    """Leave out jobs that have results."""
    existing = set(existing_outputs(jobs, out))
    if existing:
        logger.info("%d of %d images have results", len(existing), len(jobs.tasks))
    left = tuple(task for task in jobs.tasks if task.name not in existing)
    return dataclasses.replace(jobs, tasks=left)


def nodes_of(text: str | None) -> tuple[int, int] | None:
    """Read nodes and the cores of each, such as ``2x16``; None stays None.

    Raises
    ------
    ConfigError
        If it is another text.

    Examples
    --------
    >>> nodes_of("2x16")
    (2, 16)
    """
    if text is None:
        return None
    nodes, _, cores = text.partition("x")
    if nodes.isdecimal() and cores.isdecimal() and int(nodes) > 0 and int(cores) > 0:
        return int(nodes), int(cores)
    raise ConfigError(f"must be nodes x cores, not {text!r}", "--nodes", "e.g. --nodes 2x16")


def _job_plan(
    question: Question,
    app_name: str,
    tasks: list[Task],
    parameters: Mapping[str, Any],
    cluster: str,
) -> JobPlan:
    """Return jobs of an application as the project describes it.

    Parameters
    ----------
    parameters : mapping
        Only values that differ from the application's defaults.
    """
    from voxcast import config

    folder = projects.require(question.project)
    app = config.load_app(folder / projects.CONF_APP, app_name)
    engine = "none"
    if app.container and tasks:
        device = config.load_device(folder / projects.CONF_DEVICE, tasks[0].requests.device)
        engine = device.container_engine
    merged = scaled_parameters(app, "full_scale", parameters)
    return JobPlan(app, tuple(tasks), merged, engine, cluster)


def _with_cores(
    question: Question, nodes: tuple[int, int] | None, content: dict[str, Any]
) -> dict[str, Any]:
    """Return a recommendation with the CPUs of each image chosen for the nodes.

    Raises
    ------
    ConfigError
        If the nodes are not here, or an image does not fit.
    """
    if nodes is None:
        return content
    count, cores = nodes
    here = len(os.sched_getaffinity(0))
    if question.is_local and (count > 1 or cores > here):
        problem = f"this machine is one node, of which {here} cores may be used"
        raise ConfigError(problem, "--nodes", f"give at most 1x{here}")
    # On this machine a process is started, which takes no time; on a cluster a job.
    return with_planned_cpus(content, count, cores, 0.0 if question.is_local else JOB_START_S)


def _model_facts(question: Question, app: str) -> dict[str, Any]:
    """Return which model predicted; a server does not tell it."""
    service = opened(question.model, question.project)
    if not isinstance(service, PredictionService):
        return {}
    served = service.bundle.apps[app]
    return {
        "model_version": service.bundle.version,
        "forecaster_sha256": served.forecaster_sha256,
        "family": served.promotion.family,
    }


def _images(paths: Sequence[Path], participants: Sequence[str]) -> list[Path]:
    """Return the named images, or a dataset's.

    Raises
    ------
    VoxcastError
        If there are none, or a subject is not there.
    """
    if not paths:
        raise ConfigError("no images", "submit", "name some, or a BIDS dataset")
    if not paths[0].is_dir():
        if participants:
            raise ConfigError("needs a dataset", "--participant-label")
        if missing := [path for path in paths if not path.exists()]:
            raise ImageError("no such file", missing[0])
        return list(paths)
    if len(paths) > 1:
        raise ConfigError("one folder at a time", paths[1], "or name the images")
    entries = find_images(paths[0])
    for entry in entries:
        if entry.problem:
            logger.error("%s: %s", entry.path, entry.problem)
    usable = [entry for entry in entries if not entry.problem]
    return [Path(entry.path) for entry in of_participants(usable, participants, paths[0])]
