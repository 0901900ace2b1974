"""The registered model as an object in Python; `voxcast.load` returns one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.errors import ModelError
from voxcast.files import canonical_json
from voxcast.serving.bundle import Bundle
from voxcast.serving.champion import in_allocations
from voxcast.serving.machine_file import MACHINES
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.reference_model import reference_service
from voxcast.serving.request_table import answer_table, plain_row, rows_of
from voxcast.serving.signature import QUANTILE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from voxcast.images.characteristics import Characteristic
    from voxcast.records import Configuration
    from voxcast.serving.champion import Champion
    from voxcast.serving.served_app import ServedApp

    LabCharacteristics = Callable[[tuple[str, ...]], Mapping[str, Characteristic]]
    Row = Mapping[str, Any]
    Image = str | os.PathLike[str]
    Requests = pd.DataFrame | Row | Image | Sequence[Row] | Sequence[Image]

_SINGLE_KINDS = (Mapping, str, os.PathLike)  # kinds of a single value
_NEITHER = "give paths of images, or request rows as a table or as mappings"


class Predicting:
    """What predicts rows and images: a model in this process, or that of a service."""

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
        ConfigError
            If the function of a characteristic that the project declares cannot be imported.
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
                images = [Path(entry) for entry in entries]
                return self._of_images(images, app, quantile, explain, parameters, configurations)
            rows, index = (
                [plain_row(entry.items()) for entry in entries],
                pd.RangeIndex(len(entries)),
            )
        open_columns = {} if app is None else {"app": app}
        if parameters:
            open_columns["parameters_json"] = canonical_json(dict(parameters))
        rows = [{**open_columns, **row} for row in rows]
        if configurations is not None:
            rows = in_allocations(rows, configurations)
            index = index.repeat(len(configurations))
        return self._table(rows, quantile, explain=explain).set_index(index)

    def _of_images(
        self,
        images: Sequence[Path],
        app: str | None,
        quantile: float,
        explain: bool,
        parameters: Mapping[str, Any] | None,
        configurations: Sequence[Configuration] | None,
    ) -> pd.DataFrame:
        champion = self._champion(app, parameters or {})
        by_image = [champion.request_rows(image, configurations) for image in images]
        table = self._table([row for rows in by_image for row in rows], quantile, explain=explain)
        names = [str(path) for path, rows in zip(images, by_image, strict=True) for _ in rows]
        table.insert(0, "image", names)
        return table

    def _table(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool
    ) -> pd.DataFrame:
        return answer_table(self._answers(rows, quantile, explain=explain) if rows else [])

    def _champion(self, app: str | None, parameters: Mapping[str, Any]) -> Champion:
        raise NotImplementedError

    def _answers(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool
    ) -> list[dict[str, Any]]:
        raise NotImplementedError


@dataclass(frozen=True)
class Model(Predicting):
    """A version of the registered model, in this process.

    Attributes
    ----------
    local : PredictionService
        Its files; forecasters are read when they are first asked.
    lab_characteristics : callable, optional
        Returns the characteristics of a laboratory with these names that the user's project
        declares, to compute them of images; see `voxcast.images.characteristics`. By default
        none are computed.
    """

    local: PredictionService
    lab_characteristics: LabCharacteristics | None = None

    @property
    def version(self) -> str:
        """Number of the version; empty if it was loaded from a bare folder."""
        return self.local.bundle.version

    @property
    def apps(self) -> dict[str, ServedApp]:
        """The applications it predicts, by name, with ``parameters`` and ``configurations``."""
        return dict(self.local.bundle.apps)

    def _champion(self, app: str | None, parameters: Mapping[str, Any]) -> Champion:
        champion = self.local.champion(app)
        lab = self._lab_of(champion.characteristics or ())
        return replace(champion, parameters=parameters, lab=lab)

    def _lab_of(self, characteristics: Sequence[str]) -> Mapping[str, Characteristic]:
        """Return the functions of characteristics that voxcast itself does not compute."""
        from voxcast.images.characteristics import CHARACTERISTICS

        needed = tuple(name for name in characteristics if name not in CHARACTERISTICS)
        return self.lab_characteristics(needed) if needed and self.lab_characteristics else {}

    def _answers(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool
    ) -> list[dict[str, Any]]:
        return self.local.predict(rows, quantile, explain=explain)


def load(
    model: str | os.PathLike[str] | None,
    project: str | os.PathLike[str] | None,
    lab_characteristics: LabCharacteristics | None,
) -> Model:
    """Load a model; see `voxcast.load` and, for the last, `Model`."""
    folder = projects.find(None if project is None else Path(project))
    if model is None and folder is None:
        return Model(reference_service(), lab_characteristics)
    if model is None or str(model).isdecimal():
        number = None if model is None else str(model)
        local = PredictionService.of_project(projects.require(folder), number)
    else:
        local = PredictionService(
            Bundle.load(Path(model)), None if folder is None else folder / MACHINES
        )
    return Model(local, lab_characteristics)


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
