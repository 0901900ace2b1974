"""A model from Python: the champion of a project, a version of it, a folder, or a service."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.api.question import is_url
from voxcast.serving import loaded_model
from voxcast.serving.loaded_model import one_or_several

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from voxcast.api.plan import Plan
    from voxcast.api.submission import Submission
    from voxcast.serving.champion import Champion
    from voxcast.serving.client import Client
    from voxcast.serving.loaded_model import LabCharacteristics


class Recommending(loaded_model.Predicting):
    """Predictions, and plans made of them."""

    project: Path | None

    @property
    def _name(self) -> str | None:
        """The version, folder or address of the model; None for the champion."""
        raise NotImplementedError

    def recommend(
        self,
        images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        app: str | None = None,
        *,
        cluster: str | None = None,
        policy: str = "balanced",
        deadline: str | None = None,
        budget_usd: float | None = None,
        cpus: Sequence[int] | None = None,
        gpus: Sequence[int] | None = None,
        parameters: Mapping[str, Any] | None = None,
        header_only: bool = False,
    ) -> Plan:
        """Choose the cheapest request of each image that is safe.

        Parameters
        ----------
        images : path, or sequence of paths
            NIfTI files, or one BIDS dataset or folder.
        app : str, optional
            Application; needed by a model of several.
        cluster : str, optional
            ``NAME`` or ``NAME:PARTITION`` of ``conf/cluster``; by default, and with ``local``,
            this machine.
        policy : str
            A file of ``conf/policy``: how much risk is taken.
        deadline : str, optional
            A duration such as ``2h``, or a time in ISO 8601.
        budget_usd : float, optional
            Largest cost of an image.
        cpus, gpus : sequence of int, optional
            Numbers to choose among; by default all measured ones.
        parameters : mapping, optional
            Parameters that differ from the application's defaults.
        header_only : bool
            Whether to leave the voxels unread.

        Raises
        ------
        VoxcastError
            If an image, the application, the cluster or the policy cannot be used.

        Examples
        --------
        >>> plan = voxcast.load().recommend("scans", cluster="ours")  # doctest: +SKIP
        >>> plan.table[["image", "cpus", "walltime_s"]]  # doctest: +SKIP
        """
        from voxcast.api.plan import Plan, SubmissionWish
        from voxcast.api.question import Question
        from voxcast.api.wish import LOCAL, Wish

        question = Question(
            app, cpus, gpus, parameters or {}, self._name, header_only, project=self.project
        )
        wish = Wish(question, cluster or LOCAL, policy, deadline, budget_usd)
        paths = tuple(Path(path) for path in one_or_several(images))
        return Plan(wish, SubmissionWish(wish, paths).recommended())


@dataclass(frozen=True)
class Model(Recommending, loaded_model.Model):
    """A version of the registered model, in this process.

    Attributes
    ----------
    number : str or None
        Version or folder that it was loaded by; None for the champion.
    project : Path or None
        Folder of its project.
    """

    number: str | None = None
    project: Path | None = None

    @property
    def _name(self) -> str | None:
        return self.number


@dataclass(frozen=True)
class ServedModel(Recommending):
    """The model of a service; images are read here, and stay here.

    Attributes
    ----------
    url : str
        Address of ``voxcast serve``.
    project : Path or None
        Folder of a project with the clusters and policies of `recommend`.
    """

    url: str
    project: Path | None = None

    @cached_property
    def client(self) -> Client:
        """The client of the service."""
        from voxcast.serving.client import Client

        return Client(self.url)

    @property
    def version(self) -> str:
        """Number of the version that answers now."""
        return str(self.client.models()["version"])

    @property
    def apps(self) -> dict[str, Any]:
        """The applications it predicts, by name."""
        return dict(self.client.models()["apps"])

    @property
    def _name(self) -> str:
        return self.url

    def _champion(self, app: str | None, parameters: Mapping[str, Any]) -> Champion:
        from voxcast.api.question import Question

        return Question(app, None, None, parameters, self.url, project=self.project).champion()

    def _answers(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool
    ) -> list[dict[str, Any]]:
        return self.client.predict_rows(rows, quantile, explain=explain)


def load(
    model: str | os.PathLike[str] | None,
    project: str | os.PathLike[str] | None,
    lab_characteristics: LabCharacteristics | None,
) -> Model | ServedModel:
    """Load a model; see `voxcast.load`."""
    folder = None if project is None else Path(project)
    if model is not None and is_url(str(model)):
        return ServedModel(str(model), folder)
    loaded = loaded_model.load(model, project, lab_characteristics)
    number = None if model is None else str(model)
    return Model(loaded.local, loaded.lab_characteristics, number, folder)


def submit(
    images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    app: str,
    out: str | os.PathLike[str],
    **wishes: Any,
) -> Submission:
    """Run an application on images with predicted requests; return at once.

    Parameters
    ----------
    images, app
        See `Model.recommend`.
    out : path
        Folder of the results.
    **wishes
        Other arguments of `Model.recommend`, such as ``cluster="ours"``.

    Raises
    ------
    VoxcastError
        If an image has no request, results are there already, or the jobs are refused.
    """
    return load(None, None, None).recommend(images, app, **wishes).submit(out)
