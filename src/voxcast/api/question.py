"""A question to a model: the application, its allocation, and which model answers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.errors import ConfigError, ModelError, RunError, UnlearnedError
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.content_cache import ContentCache
    from voxcast.images.characteristics import Characteristic
    from voxcast.serving.champion import Champion
    from voxcast.serving.prediction_service import PredictionService

CONF_APP = Path("conf/app")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A question about images, and the model that answers it.

    Attributes
    ----------
    cpus, gpus : sequence of int or None
        Numbers of CPUs and GPUs; by default the allocations that were measured.
    parameters : mapping, or sequence of str
        Parameters that differ from the application's defaults; texts are ``NAME=VALUE``.
    model : str or None
        Number of a version, a model folder, or the URL of a server; by default the champion.
    """

    app: str | None = None
    cpus: Sequence[int] | None = None
    gpus: Sequence[int] | None = None
    parameters: Mapping[str, Any] | Sequence[str] = ()
    model: str | None = None
    header_only: bool = False
    machine: str | None = None
    project: Path | None = None

    def __post_init__(self) -> None:
        """Check that there is such a model.

        Raises
        ------
        ModelError
            If it is neither a number, nor a folder, nor an address.
        """
        is_named = self.model is None or self.model.isdecimal() or self.url is not None
        if not is_named and not Path(str(self.model)).is_dir():
            then = "give the number of a version, a model folder, or the URL of a server"
            raise ModelError("no such model", self.model, then)

    @property
    def url(self) -> str | None:
        """The address of the server that answers, if one does."""
        return self.model if self.model is not None and is_url(self.model) else None

    def service(self) -> PredictionService:
        """Return the model that answers in this process.

        Raises
        ------
        ConfigError
            Without a project, unless a model folder is named.
        ModelError
            If the model is missing or cannot be read.
        """
        from voxcast.serving.loaded_model import load

        if self.model is None and projects.find(self.project) is None:
            from voxcast.serving.reference_model import reference_service

            logger.info("no project here: the reference model of the package answers")
            return reference_service()
        # A name with a letter is a folder; a version is a number.
        folder = None if self.model is not None and Path(self.model).is_dir() else self._required()
        return load(self.model, folder or projects.find(self.project), None).local

    def champion(self) -> Champion:
        """Return the model with the application, allocations and parameters of the question.

        Raises
        ------
        ConfigError
            Without a project, or if the allocation is unknown.
        ModelError
            Without a model, or if it lacks the application or parameter.
        """
        folder = projects.find(self.project)
        champion = self._opened(folder)
        listed = champion.app_parameters is not None
        return replace(
            champion,
            lab=_lab_of(champion, folder),
            app=self.app or champion.app,
            configurations=allocations(
                champion.configurations, self.cpus, self.gpus, complete=listed
            ),
            parameters=parameters_of(self.parameters, champion.app_parameters),
            header_only=self.header_only,
            host=self.machine,
            cache=question_cache(folder),
        )

    def _opened(self, folder: Path | None) -> Champion:
        if self.url is not None:
            return _served_champion(self.url, self.app, folder)
        try:
            return self.service().champion(self.app)
        except UnlearnedError:
            if folder is None:
                then = "make a project with `voxcast init`, and learn it there"
                raise UnlearnedError("is not in the reference model", self.app, then) from None
            if not self.app or not (self._required() / CONF_APP / f"{self.app}.yaml").is_file():
                raise
            then = f"run `voxcast learn IMAGES --app {self.app}`"
            raise UnlearnedError("has no model yet", self.app, then) from None

    def _required(self) -> Path:
        return projects.require(self.project)


def is_url(model: str) -> bool:
    """Return whether a model is named by the address of its server."""
    return model.startswith(("http://", "https://"))


def allocations(
    listed: Sequence[Configuration],
    cpus: Sequence[int] | None,
    gpus: Sequence[int] | None,
    *,
    complete: bool = True,
) -> list[Configuration]:
    """Return the allocations to ask about.

    Parameters
    ----------
    listed : sequence of Configuration
        Allocations in the training runs; ``gpus`` chooses among them.
    cpus, gpus : sequence of int or None
        Replace the numbers of the allocations that are chosen. Numbers of CPUs alone are for
        allocations without GPUs, if there are such.
    complete : bool
        Whether all devices are listed; a server does not list its own.

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
        if not sizes and not complete:
            sizes = [("gpu" if g else "cpu", 1, g) for g in gpus]
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
    from voxcast.apps.app import parameter_values
    from voxcast.serving.rows import check_parameters

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
    from voxcast.content_cache import FOLDER_VARIABLE, cache_of_environment

    if FOLDER_VARIABLE in os.environ:
        return cache_of_environment()
    try:
        return None if folder is None else cache_of_environment(folder)
    except RunError as error:
        logger.info("images are not remembered: %s", error)
        return None


def _lab_of(champion: Champion, folder: Path | None) -> dict[str, Characteristic]:
    """Return the characteristics that the project declares and the champion may need."""
    from voxcast.images.characteristics import CHARACTERISTICS

    needed = champion.characteristics
    if folder is None or (needed is not None and set(needed) <= set(CHARACTERISTICS)):
        return {}  # without reading the configuration
    from voxcast.config.load import project_characteristics

    return project_characteristics(folder, needed)


def _served_champion(url: str, app: str | None, folder: Path | None) -> Champion:
    """Return the champion served at an address.

    MLflow's server does not tell its allocations; a project, if any, gives these.
    """
    from voxcast.serving.client import Client

    champion = Client(url).champion(app)
    if folder is None or champion.app_parameters is not None:
        return champion
    from voxcast import config

    params = config.load(folder / config.PARAMS_FILE)
    return replace(
        champion,
        configurations=params.configurations("cpu"),
        coarse_points=params.features.coarse_points,
    )
