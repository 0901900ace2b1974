"""Plans: requests for images, from a model, a recommendation or another plan."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from voxcast.allocation.recommendation import Recommendation
    from voxcast.api.submission import Submission
    from voxcast.api.wish import Wish
    from voxcast.jobs.submission import Plan as JobPlan
    from voxcast.jobs.task import Task
    from voxcast.records import App

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recommended:
    """A recommendation for images, with the header and characteristics of each by its path."""

    images: tuple[Path, ...]
    recommendation: Recommendation
    volumes: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class SubmissionWish:
    """A submission as the user wants it.

    Attributes
    ----------
    wish : Wish
        Model, cluster and limits.
    images : tuple of Path
        Files, or one BIDS dataset or folder.
    participants : tuple of str
        Labels of the participants of the dataset; all by default.
    requests : Path or None
        A plan or a recommendation, instead of images.
    out : Path or None
        Folder of the results.
    skip_existing : bool
        Whether images with results are left out.
    nodes : tuple of int, or None
        Nodes and cores of a node, for which the CPUs of all images are chosen together.
    sbatch : tuple of str
        Options of sbatch, ``KEY=VALUE``.
    throttle : int or None
        Tasks at a time.
    predicted : Recommended, optional
        The recommendation, if it was made before.
    """

    wish: Wish
    images: tuple[Path, ...] = ()
    participants: tuple[str, ...] = ()
    requests: Path | None = None
    out: Path | None = None
    skip_existing: bool = False
    nodes: tuple[int, int] | None = None
    sbatch: tuple[str, ...] = ()
    throttle: int | None = None
    predicted: Recommended | None = None

    def plan(self) -> tuple[JobPlan, int]:
        """Return the plan, and the exit code: 2 where an image has no request.

        Raises
        ------
        VoxcastError
            If images, requests or the application cannot be used.
        """
        from voxcast.jobs.submission import SlurmOptions, existing_outputs
        from voxcast.jobs.task import Limits

        plan, code = self._predicted() if self.requests is None else (self._read(), 0)
        slurm = SlurmOptions.from_texts(self.sbatch, self.throttle)
        options = {name: value for name, value in vars(slurm).items() if value}
        max_usd = self.wish.max_usd
        plan = dataclasses.replace(
            plan,
            limits=Limits(max_usd=math.inf if max_usd is None else max_usd),
            slurm=dataclasses.replace(plan.slurm, **options),
        )
        partition = self.wish.partition
        if partition is not None and self.requests is not None:
            moved = (
                dataclasses.replace(
                    task, requests=dataclasses.replace(task.requests, partition=partition)
                )
                for task in plan.tasks
            )
            plan = dataclasses.replace(plan, tasks=tuple(moved))
        if self.skip_existing and self.out is not None:
            existing = set(existing_outputs(plan, self.out))
            if existing:
                logger.info("%d of %d images have results", len(existing), len(plan.tasks))
            left = tuple(task for task in plan.tasks if task.name not in existing)
            plan = dataclasses.replace(plan, tasks=left)
        _check(plan)
        return plan, code

    def _read(self) -> JobPlan:
        """Return the plan of the file of requests."""
        from voxcast.jobs.submission import VERSION_KEY, read_json_object
        from voxcast.jobs.submission import Plan as JobPlan
        from voxcast.jobs.task import from_file

        path = Path(str(self.requests))
        if self.images:
            raise ConfigError("has its images", "--requests", "leave out IMAGE")
        if self.wish.question.parameters:
            raise ConfigError("has its parameters", "--requests", "leave out --param")
        content = read_json_object(path)
        if VERSION_KEY in content:
            if self.nodes is not None:
                raise ConfigError(
                    "a plan has its CPUs already", "--nodes",
                    "give it where the plan is made, or start from `voxcast recommend --json`",
                )  # fmt: skip
            return JobPlan.from_record(content, path)
        try:
            with_cores = self._with_cores(content)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"incomplete: {error!r}", path, "write it again") from None
        name, tasks = from_file(with_cores, path)
        app = self._described(self.wish.question.app or name)
        parameters = content.get("parameters", {})  # missing in plans of an earlier release
        if not isinstance(parameters, dict):
            raise ConfigError("parameters must be an object", path, "write it again")
        return self._plan(app, tasks, str(content.get("cluster", "")), parameters)

    def _plan(
        self, app: App, tasks: list[Task], cluster: str, parameters: Mapping[str, Any]
    ) -> JobPlan:
        """Return a plan; ``parameters`` differ from the application's defaults."""
        from voxcast.apps.app import scaled_parameters
        from voxcast.jobs.submission import Plan as JobPlan

        merged = scaled_parameters(app, "full_scale", parameters)
        engine = self._container_engine(app, tasks)
        return JobPlan(app, tuple(tasks), merged, engine, cluster)

    def recommended(self) -> Recommended:
        """Return the recommendation for all images; errors as `Wish.recommendation`."""
        site = self.wish.site() if self.wish.is_local else self.wish.slurm_site()
        images = tuple(_images(self.images, self.participants))
        volumes: dict[str, dict[str, Any]] = {}
        recommendation = self.wish.recommendation(images, site, volumes)
        if recommendation is None:
            raise ImageError("no image can be predicted", None, "see the lines above")
        return Recommended(images, recommendation, volumes)

    def _predicted(self) -> tuple[JobPlan, int]:
        """Return the plan for all images that have a request, as `voxcast recommend` chooses it.

        The exit code is 2 where one has none.
        """
        from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu
        from voxcast.jobs.task import recommended

        predicted = self.predicted or self.recommended()
        recommendation, volumes = predicted.recommendation, predicted.volumes
        code = EXIT_BAD_INPUT if len(recommendation.images) < len(predicted.images) else 0
        for image, reason in recommendation.without_request():
            logger.error("%s: %s", image, reason)
            code = EXIT_BAD_INPUT
        app = self._described(str(recommendation.images[0].by_candidate[0]["app"]))
        tasks, _ = recommended(recommendation, self._with_cores)
        model = self._model_facts(app.name)
        for n, task in tasks.items():
            volume, prediction = volumes.get(recommendation.images[n].image), task.prediction
            if prediction is not None:
                prediction = dataclasses.replace(prediction, **model)
            tasks[n] = dataclasses.replace(task, volume=volume, prediction=prediction)
        parameters, cluster = recommendation.parameters, recommendation.cluster.name
        plan = self._plan(app, list(tasks.values()), cluster, parameters)
        added_bytes = recommendation.cluster.stated_bytes_of(app.name)
        slurm = SlurmOptions(memory_per_cpu=partitions_per_cpu(recommendation.cluster))
        return dataclasses.replace(plan, slurm=slurm, added_memory_bytes=added_bytes), code

    def _with_cores(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return a recommendation with the CPUs of each image chosen for the nodes.

        Raises
        ------
        ConfigError
            If the nodes are not here, or an image does not fit.
        """
        from voxcast.allocation.cores import JOB_START_S, with_planned_cpus

        if self.nodes is None:
            return content
        nodes, cores = self.nodes
        if self.wish.is_local:
            here = len(os.sched_getaffinity(0))
            if nodes > 1 or cores > here:
                problem = f"this machine is one node, of which {here} cores may be used"
                raise ConfigError(problem, "--nodes", f"give at most 1x{here}")
        # On this machine a process is started, which takes no time; on a cluster a job.
        start_s = 0.0 if self.wish.is_local else JOB_START_S
        return with_planned_cpus(content, nodes, cores, start_s)

    def _model_facts(self, app: str) -> dict[str, Any]:
        """Return which model predicted; a server does not tell it."""
        from voxcast.serving.prediction_service import PredictionService

        service = self.wish.question.service()
        if not isinstance(service, PredictionService):
            return {}
        bundle = service.bundle
        served = bundle.apps[app]
        return {
            "model_version": bundle.version,
            "forecaster_sha256": served.forecaster_sha256,
            "family": served.promotion.family,
        }

    def _described(self, name: str) -> App:
        """Return the application as the project describes it."""
        from voxcast import config

        return config.load_app(self._project / projects.CONF_APP, name)

    def _container_engine(self, app: App, tasks: list[Task]) -> str:
        if not app.container or not tasks:
            return "none"
        from voxcast import config

        folder = self._project / projects.CONF_DEVICE
        return config.load_device(folder, tasks[0].requests.device).container_engine

    @property
    def _project(self) -> Path:
        return projects.require(self.wish.question.project)


@dataclass(frozen=True)
class Plan:
    """Requests for images, as `voxcast.api.model.Model.recommend` returns it."""

    wish: Wish
    predicted: Recommended

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
            for image in self.predicted.recommendation.as_json()["images"]
        ]
        return pd.DataFrame(rows)

    @property
    def offers(self) -> pd.DataFrame:
        """One row for each image and allocation, with time, cost and whether it is ``chosen``."""
        import pandas as pd

        rows = [
            {"image": image["image"], **offer, "chosen": offer == image["chosen"]}
            for image in self.predicted.recommendation.as_json()["images"]
            for offer in image["configurations"]
        ]
        return pd.DataFrame(rows)

    def sbatch(self) -> str:
        """Return the ``#SBATCH`` lines of one image, or the script of an array job for several."""
        from voxcast.jobs.script import slurm_text

        return slurm_text(self.predicted.recommendation)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write time and memory of three attempts for each image, for workflow engines."""
        from voxcast.jobs.task import resources, write_resources

        write_resources(resources(self.predicted.recommendation), Path(path))

    def submit(
        self,
        out: str | os.PathLike[str],
        *,
        sbatch: Sequence[str] = (),
        throttle: int | None = None,
        skip_existing: bool = False,
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
        skip_existing : bool
            Whether to leave out images that have results.

        Raises
        ------
        VoxcastError
            If results are there already, or the jobs are refused.
        """
        from voxcast.api.submission import start

        wish = SubmissionWish(
            self.wish, self.predicted.images, out=Path(out), skip_existing=skip_existing,
            sbatch=tuple(sbatch), throttle=throttle, predicted=self.predicted,
        )  # fmt: skip
        plan, _ = wish.plan()
        is_local = self.predicted.recommendation.cluster.is_this_machine
        return start(plan, Path(out), is_local=is_local)


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


def _images(paths: Sequence[Path], participants: Sequence[str]) -> list[Path]:
    """Return the named images, or a dataset's.

    Raises
    ------
    VoxcastError
        If there are none, or a subject is not there.
    """
    from voxcast.images.sources import find_images, subject_label

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
    if participants:
        wanted = {subject_label(label) for label in participants}
        if absent := wanted - {entry.subject for entry in usable}:
            names = ", ".join(sorted(absent))
            raise ImageError(f"has no subject {names}", paths[0], "check --participant-label")
        usable = [entry for entry in usable if entry.subject in wanted]
    return [Path(entry.path) for entry in usable]


def _check(plan: JobPlan) -> None:
    """Check the application, its container and the images before anything is submitted."""
    from voxcast.apps.app import chosen
    from voxcast.apps.containers import ENGINES

    engine = plan.container_engine
    if plan.app.container:
        chosen(engine, ("none", *ENGINES), "container engine")
        if engine == "none":
            then = "name one in conf/device, e.g. container_engine: apptainer"
            raise ConfigError("needs a container engine, and none is chosen", plan.app.name, then)
    for task in plan.tasks:
        if task.image and not Path(task.image).is_file():
            raise ImageError("no such file", task.image)
