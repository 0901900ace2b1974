"""The registered model in this process, without MLflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.serving.bundle import ARTIFACTS, FOLDER, Bundle
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows.refusals import refusal
from voxcast.serving.rows.typed_rows import typed_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class LocalModel:
    """The files of the registered model, and its bundle.

    Attributes
    ----------
    folder : Path
        Folder of the model, as MLflow wrote it.
    bundle : Bundle
        The bundle in it.
    machines : Path, optional
        See `voxcast.serving.prediction_service.PredictionService`.
    version : str, optional
        Number of its version in the registry; by default what MLflow noted in the folder.
    """

    folder: Path
    bundle: Bundle
    machines: Path | None = None
    version: str | None = None

    @classmethod
    def load(
        cls,
        folder: Path,
        machines: Path | None = None,
        version: str | None = None,
        index_sha256: str | None = None,
    ) -> LocalModel:
        """Open the bundle; parameters and errors as of `Bundle.load`."""
        bundle = Bundle.load(folder / ARTIFACTS / FOLDER, index_sha256)
        return cls(folder, bundle, machines, version)

    def predict(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
    ) -> list[dict[str, Any]]:
        """Return one row of predictions for each row of the request.

        Raises
        ------
        RequestError
            If the model rejects the request, with the message of the server.
        """
        service = PredictionService(self.bundle, self.machines, self.version)
        try:
            typed = typed_rows(rows, self.bundle.lab_characteristics)
            return service.predict(typed, quantile, explain=explain)
        except ModelError as error:
            raise refusal(str(error)) from None
