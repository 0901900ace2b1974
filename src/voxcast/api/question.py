"""A question about images: which model answers, for which allocations, on which cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.allocation.offers import HardLimits, seconds_until
from voxcast.allocation.site import THIS_MACHINE
from voxcast.apps.app import parameter_values
from voxcast.content_cache import FOLDER_VARIABLE, ContentCache, cache_of_environment
from voxcast.errors import ConfigError, ModelError, RunError, UnlearnedError
from voxcast.files import canonical_json
from voxcast.measure.metronome import reading_begun
from voxcast.records import Configuration
from voxcast.serving.champion import Champion
from voxcast.serving.client import Client
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import check_parameters
from voxcast.serving.site_candidates import SiteCandidates, predict_images
from voxcast.serving.table_files import BatchPredictions, RowFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.recommendation import Recommendation
    from voxcast.config import Site

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A question about images, and the limits that an answer respects.

    Attributes
    ----------
    cpus, gpus : sequence of int or None
        Numbers of CPUs and GPUs; by default the allocations that were measured.
    parameters : mapping, or sequence of str
        Parameters that differ from the application's defaults; texts are ``NAME=VALUE``.
    model : str or None
        Number of a version, a model folder, or the URL of a server; by default the champion.
    cluster : str or None
        ``NAME`` or ``NAME:PARTITION``; ``local`` is this machine.
    deadline : str or None
        A duration such as ``2h``, or a time in ISO 8601.
    budget_usd : float or None
        Largest cost of an image.
    changes : sequence of str
        ``KEY=VALUE`` of the configuration of cluster and policy.
    """

    app: str | None = None
    cpus: Sequence[int] | None = None
    gpus: Sequence[int] | None = None
    parameters: Mapping[str, Any] | Sequence[str] = ()
    model: str | None = None
    project: Path | None = None
    header_only: bool = False
    machine: str | None = None
    cluster: str | None = None
    policy: str | None = None
    deadline: str | None = None
    budget_usd: float | None = None
    changes: Sequence[str] = ()

    @property
    def partition(self) -> str | None:
        """The only partition to use, if one is named."""
        return (self.cluster or "").partition(":")[2] or None

    @property
    def is_local(self) -> bool:
        """Whether the cluster is this machine, by name."""
        return self.cluster == THIS_MACHINE

    def champion(self, *, for_now: bool = False) -> Champion:
        """Return the model with the application, allocations and parameters of the question.

        Parameters
        ----------
        for_now : bool
            Whether it asks how fast this machine is now, where no other one is named.

        Raises
        ------
        ConfigError
            Without a project, or if the allocation is unknown.
        ModelError
            Without a model, or if it lacks the application or parameter.
        """
        folder = projects.find(self.project)
        try:
            champion = opened(self.model, self.project).champion(self.app)
        except UnlearnedError:
            if folder is None:
                then = "make a project with `voxcast init`, and learn it there"
                raise UnlearnedError("is not in the reference model", self.app, then) from None
            if not self.app or not (folder / projects.CONF_APP / f"{self.app}.yaml").is_file():
                raise
            then = f"run `voxcast learn IMAGES --app {self.app}`"
            raise UnlearnedError("has no model yet", self.app, then) from None
        reading = None
        if for_now and self.machine is None and champion.reads_kernels:
            reading = reading_begun()
        return replace(
            champion,
            reading=reading,
            configurations=allocations(champion.configurations, self.cpus, self.gpus),
            parameters=parameters_of(self.parameters, champion.facts.parameters),
            header_only=self.header_only,
            host=self.machine,
            cache=question_cache(folder),
        )

    def batches(self, source: RowFile, quantile: float, *, explain: bool) -> BatchPredictions:
        """Return the predictions of the rows of a table; the question fills empty cells.

        Raises
        ------
        ModelError
            Without a model, or if it lacks the application or parameter.
        """
        model = opened(self.model, self.project)
        is_one = self.app is not None or len(model.apps) == 1
        accepted = model.champion(self.app).facts.parameters if is_one else None
        parameters = parameters_of(self.parameters, accepted)
        cells = {
            "app": self.app, "host": self.machine,
            "parameters_json": canonical_json(parameters) if parameters else None,
        }  # fmt: skip
        defaults = {name: text for name, text in cells.items() if text is not None}
        return BatchPredictions(model.predict, source, quantile, explain, defaults)

    def site(self, *, with_slurm: bool = False) -> Site:
        """Return cluster and policy of the project; errors as `voxcast.config.load_submit`.

        Where the cluster's file leaves open how memory is counted, Slurm is asked.

        Parameters
        ----------
        with_slurm : bool
            Refuse a cluster that is this machine; the message lists other clusters.
        """
        from voxcast import config

        conf_dir = projects.require(self.project) / config.CONF_DIR
        name = (self.cluster or "").partition(":")[0] or None
        site = config.current_site(conf_dir, name, self.policy, self.changes)
        if not (with_slurm and site.cluster.is_this_machine):
            return site
        others = [name for name in config.options(conf_dir / "cluster") if name != THIS_MACHINE]
        names = ", ".join(others) or "none"
        then = f"choose --cluster from {names}, or copy a file of conf/cluster for yours"
        raise ConfigError("has no partitions of Slurm, as it is this machine", THIS_MACHINE, then)

    def recommendation(
        self,
        images: Sequence[Path],
        *,
        with_slurm: bool = False,
        for_now: bool = False,
        volumes: dict[str, dict[str, Any]] | None = None,
    ) -> Recommendation | None:
        """Return the recommendation for the images that can be predicted; None without any.

        Parameters
        ----------
        with_slurm : bool
            See `site`.
        for_now : bool
            See `champion`.
        volumes : dict, optional
            Is filled as in `voxcast.serving.champion.Champion`.

        Raises
        ------
        VoxcastError
            If limits, cluster or model cannot be had.
        """
        deadline = self.deadline
        deadline_s = None if deadline is None else seconds_until(deadline, "--deadline")
        limits, site = HardLimits(deadline_s, self.budget_usd), self.site(with_slurm=with_slurm)
        champion = replace(self.champion(for_now=for_now), volumes=volumes)
        candidates = SiteCandidates.of(
            site.cluster, champion.configurations, champion.facts.host_classes,
            partition=self.partition, host=champion.host,
        )  # fmt: skip
        predictions = predict_images(champion, images, candidates, site.policy.confidence)
        if not predictions:
            return None
        return candidates.recommendation(
            site.policy, limits, predictions, champion.facts.host_classes,
            champion.facts.measured, champion.parameters,
        )  # fmt: skip


def opened(model: str | None, project: Path | None) -> PredictionService | Client:
    """Open a model: a version by its number, a folder, or a service by its address.

    By default it is the champion of the project, or without one the model of the package.

    Raises
    ------
    ConfigError
        If a project is needed and missing.
    ModelError
        If the model is missing or cannot be read.
    """
    if model is not None and model.startswith(("http://", "https://")):
        return Client(model)

    folder = projects.find(project)
    if model is not None and not model.isdecimal():
        if not Path(model).is_dir():
            then = "give the number of a version, a model folder, or the URL of a server"
            raise ModelError("no such model", model, then)
        return PredictionService.of_folder(Path(model), folder)
    if model is None and folder is None:
        logger.info("no project here: the reference model of the package answers")
        return PredictionService.reference()
    return PredictionService.of_project(projects.require(folder), model)


def allocations(
    listed: Sequence[Configuration],
    cpus: Sequence[int] | None,
    gpus: Sequence[int] | None,
) -> list[Configuration]:
    """Return the allocations to ask about.

    Parameters
    ----------
    listed : sequence of Configuration
        Allocations in the training runs; ``gpus`` chooses among them.
    cpus, gpus : sequence of int or None
        Replace the numbers of the allocations that are chosen. Numbers of CPUs alone are for
        allocations without GPUs, if there are such.

    Raises
    ------
    ConfigError
        If none is left.

    Examples
    --------
    >>> listed = [Configuration("cpu", 1), Configuration("cpu", 2), Configuration("gpu", 2, 1)]
    >>> [c.label for c in allocations(listed, (4,), None)]
    ['cpu, 4 CPUs']
    >>> [c.label for c in allocations(listed, None, (1, 2))]
    ['gpu, 2 CPUs, 1 GPU', 'gpu, 2 CPUs, 2 GPUs']
    """
    if cpus is None and gpus is None:
        return list(listed)
    sizes = [(c.device, c.cpus, c.gpus) for c in listed]
    if gpus is None:
        sizes = [size for size in sizes if size[2] == 0] or sizes
    else:
        sizes = [(name, n, g) for name, n, size in sizes for g in gpus if (g > 0) == (size > 0)]
        if not sizes:
            wanted = f"--gpus {','.join(map(str, gpus))}"
            labels = "; ".join(configuration.label for configuration in listed)
            then = f"the model has {labels}"
            raise ConfigError("no such allocation was measured", wanted, then)
    if cpus is not None:
        sizes = [(name, n, g) for name, _, g in sizes for n in cpus]
    return [Configuration(name, n, g) for name, n, g in dict.fromkeys(sizes)]


def parameters_of(
    texts: Mapping[str, Any] | Sequence[str], app_parameters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return parameters, checked if the application's are known; texts are ``NAME=VALUE``.

    Raises
    ------
    ModelError
        If the application has no such parameter, or the value is of another type.
    """
    if not texts:
        return {}

    if isinstance(texts, Mapping):
        parameters = dict(texts)
    else:
        parameters = parameter_values(texts, app_parameters)
    if app_parameters is not None:
        check_parameters(parameters, app_parameters, "--param")
    return parameters


def question_cache(folder: Path | None) -> ContentCache | None:
    """Return the cache of image summaries: of ``VOXCAST_CACHE``, or a project's if any.

    A project that this user may not write to is used without.

    Raises
    ------
    RunError
        If ``VOXCAST_CACHE`` names a folder that cannot be used.
    """
    if FOLDER_VARIABLE in os.environ:
        return cache_of_environment()
    try:
        return None if folder is None else cache_of_environment(folder)
    except RunError as error:
        logger.info("images are not remembered: %s", error)
        return None
