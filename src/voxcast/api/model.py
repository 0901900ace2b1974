"""A model from Python: the champion of a project, a version of it, a folder, or a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.serving import loaded_model
from voxcast.serving.loaded_model import one_or_several

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from voxcast.api.plan import Plan
    from voxcast.api.submission import Submission
    from voxcast.serving.loaded_model import LabCharacteristics


@dataclass(frozen=True)
class Model(loaded_model.Model):
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
            app, cpus, gpus, parameters or {}, self.number, header_only, project=self.project
        )
        budget = None if budget_usd is None else f"{budget_usd:.12g}"
        wish = Wish(question, cluster or LOCAL, policy, deadline, budget)
        paths = tuple(Path(path) for path in one_or_several(images))
        return Plan(wish, SubmissionWish(wish, paths).recommended())


def load(
    model: str | os.PathLike[str] | None,
    project: str | os.PathLike[str] | None,
    lab_characteristics: LabCharacteristics | None,
) -> Model:
    """Load a model; see `voxcast.load`."""
    loaded = loaded_model.load(model, project, lab_characteristics)
    number = None if model is None else str(model)
    folder = None if project is None else Path(project)
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
