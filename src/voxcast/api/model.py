"""A model from Python: the champion of a project, a version of it, a folder, or a service.

Facts of images and recorded runs are tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.allocation.site import THIS_MACHINE
from voxcast.api.plan import Plan
from voxcast.api.question import Question, opened
from voxcast.errors import ModelError
from voxcast.files import canonical_json
from voxcast.records import Configuration
from voxcast.runs.store import open_history
from voxcast.serving.bundle import ServedApp
from voxcast.serving.champion import in_allocations
from voxcast.serving.client import Client, ServedFacts
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import answer_table, plain_row, rows_of
from voxcast.serving.signature import QUANTILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.api.submission import Submission

    Row = Mapping[str, Any]
    Image = str | os.PathLike[str]
    Requests = pd.DataFrame | Row | Image | Sequence[Row] | Sequence[Image]

_SINGLE_KINDS = (Mapping, str, os.PathLike)  # kinds of a single value
_NEITHER = "give paths of images, or request rows as a table or as mappings"


@dataclass(frozen=True)
class Model:
    """A model in this process, or one behind a service; images are read here in either case.

    Attributes
    ----------
    service : PredictionService or Client
        What answers.
    name : str or None
        Version, folder or address that it was loaded by; None for the champion.
    project : Path or None
        Folder of the project that was named, whose clusters and policies are
        used.
    """

    service: PredictionService | Client
    name: str | None = None
    project: Path | None = None

    @property
    def version(self) -> str:
        """Number of the version that answers; empty if it was loaded from a bare folder."""
        return self.service.version

    @property
    def apps(self) -> Mapping[str, ServedApp | ServedFacts]:
        """The applications it predicts, by name, with ``parameters`` and ``configurations``."""
        return self.service.apps

    def predict(
        self,
        requests: Requests,
        app: str | None = None,
        quantile: float = QUANTILE,
        *,
        explain: bool = False,
        parameters: Mapping[str, Any] | None = None,
        configurations: Sequence[Configuration] | None = None,
    ) -> pd.DataFrame:
        """Predict CPU time, wall time and memory.

        Parameters
        ----------
        requests : DataFrame, mapping, path, or sequence of mappings or paths
            Request rows with the columns of `voxcast.serving.signature`, or NIfTI files.
        app : str, optional
            Application, for images and for rows that name none; needed by a model of several.
        quantile : float
            Probability of the upper bounds, above 0.5; the lower ones are at ``1 - quantile``.
        explain : bool
            Fill the column ``because``.
        parameters : mapping, optional
            Parameters of the application, for images and for rows without ``parameters_json``.
        configurations : sequence of Configuration, optional
            Allocations to predict each image or row for. By default images are predicted for
            all of the application, and rows for the one that they state.

        Returns
        -------
        DataFrame
            One row for each row of the request, with its index, or for each image and
            configuration, with the path in a first column ``image``; with ``configurations``, one
            for each row and configuration. The other columns are in `voxcast.serving.signature`.

        Raises
        ------
        ImageError
            If an image cannot be read.
        ModelError
            If the model has no such application, or refuses a row, which the message names.

        Examples
        --------
        >>> model = voxcast.load()  # doctest: +SKIP
        >>> model.predict("sub-01_T1w.nii.gz")[["cpus", "runtime_s_upper"]]  # doctest: +SKIP
        """
        import pandas as pd

        if isinstance(requests, pd.DataFrame):
            rows, index = rows_of(requests), requests.index
        else:
            entries = _entries(requests)
            if entries and not isinstance(entries[0], Mapping):
                champion = self.service.champion(app)
                champion = replace(champion, parameters=parameters or {})
                named = [
                    (str(path), row)
                    for path in entries
                    for row in champion.request_rows(Path(path), configurations)
                ]
                answers = self.service.predict(
                    [row for _, row in named], quantile, explain=explain
                )
                table = answer_table(answers)
                table.insert(0, "image", [path for path, _ in named])
                return table
            rows = [plain_row(entry.items()) for entry in entries]
            index = pd.RangeIndex(len(entries))
        open_columns = {} if app is None else {"app": app}
        if parameters:
            open_columns["parameters_json"] = canonical_json(dict(parameters))
        rows = [{**open_columns, **row} for row in rows]
        if configurations is not None:
            rows = in_allocations(rows, configurations)
            index = index.repeat(len(configurations))
        answers = self.service.predict(rows, quantile, explain=explain) if rows else []
        return answer_table(answers).set_index(index)

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

        Raises
        ------
        VoxcastError
            If an image, the application, the cluster or the policy cannot be used.

        Examples
        --------
        >>> plan = voxcast.load().recommend("scans", cluster="ours")  # doctest: +SKIP
        >>> plan.table[["image", "cpus", "walltime_s"]]  # doctest: +SKIP
        """
        question = Question(
            app, cpus, gpus, parameters or {}, self.name, self.project,
            cluster=cluster or THIS_MACHINE, policy=policy, deadline=deadline,
            budget_usd=budget_usd,
        )  # fmt: skip
        return Plan.of(question, [Path(path) for path in one_or_several(images)])


def load(
    model: str | os.PathLike[str] | None = None, project: str | os.PathLike[str] | None = None
) -> Model:
    """Load a model; see `voxcast.load`."""
    name = None if model is None else str(model)
    folder = None if project is None else Path(project).resolve()
    return Model(opened(name, folder), name, folder)


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
    return load().recommend(images, app, **wishes).submit(out)


def inspect(image: str | os.PathLike[str]) -> pd.Series:
    """Return the header and the characteristics of an image.

    Parameters
    ----------
    image : path
        A NIfTI file.

    Raises
    ------
    ImageError
        If it cannot be read.

    Examples
    --------
    >>> voxcast.inspect("sub-01_T1w.nii.gz")["foreground_ml"]  # doctest: +SKIP
    """
    import pandas as pd

    from voxcast.images.characteristics import characteristics
    from voxcast.images.volume import Volume

    volume = Volume.open(Path(image))
    facts = {**volume.header.columns(), **characteristics(volume.read())}
    return pd.Series(facts, name=str(image))


def history(*folders: str | os.PathLike[str]) -> pd.DataFrame:
    """Return recorded runs, one row for each.

    Parameters
    ----------
    *folders : path
        Folders of ``data/history``, their parts, or folders of runs; by default all runs of the
        project above the current folder.

    Raises
    ------
    TableError
        If a folder cannot be read as a history.
    ConfigError
        If neither a folder is named nor a project found.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        recorded = projects.require(None) / projects.HISTORY
        paths = sorted(path for path in recorded.iterdir() if path.is_dir())
    return open_history(paths).runs


def one_or_several(values: Any) -> list[Any]:
    """Return a list of one value, or of several."""
    is_several = isinstance(values, Iterable) and not isinstance(values, _SINGLE_KINDS)
    return list(values) if is_several else [values]


def _entries(requests: Any) -> list[Any]:
    """Return the rows or the images of a request.

    Raises
    ------
    ModelError
        If it has others, or both.
    """
    entries = one_or_several(requests)
    of_rows = {isinstance(entry, Mapping) for entry in entries}
    if len(of_rows) > 1 or not all(isinstance(entry, _SINGLE_KINDS) for entry in entries):
        raise ModelError("is neither images nor rows", "requests", _NEITHER)
    return entries
