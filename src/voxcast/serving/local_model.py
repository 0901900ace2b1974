"""A version of a project's model in this process, without MLflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.serving.bundle import Bundle
from voxcast.serving.machine_file import MACHINES
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows.refusals import refusal
from voxcast.serving.rows.typed_rows import typed_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.serving.champion import Champion


@dataclass(frozen=True)
class LocalModel:
    """A bundle, and the speeds of machines that were measured after training.

    Attributes
    ----------
    bundle : Bundle
        The version; its forecasters are read when they are first asked.
    machines : Path, optional
        See `voxcast.serving.prediction_service.PredictionService`.
    """

    bundle: Bundle
    machines: Path | None = None

    @classmethod
    def of_project(cls, project: Path, version: str | None = None) -> LocalModel:
        """Open a version of a project, by default the champion; errors as `ModelStore.open`."""
        return cls(ModelStore.of(project).open(version), project / MACHINES)

    def champion(self, app: str | None = None) -> Champion:
        """Return it with the defaults of an application; None stands for the only one.

        Raises
        ------
        ModelError
            See `voxcast.serving.bundle.Bundle.app_named`.
        """
        served = self.bundle.app_named(app)
        from voxcast.serving.champion import Champion  # numpy: after all that may be refused

        return Champion.of(self, served)

    def predict(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
    ) -> list[dict[str, Any]]:
        """Return one row of predictions for each row of the request.

        Raises
        ------
        RequestError
            If the model rejects the request, with the message of the server.
        """
        service = PredictionService(self.bundle, self.machines)
        try:
            typed = typed_rows(rows, self.bundle.lab_characteristics)
            return service.predict(typed, quantile, explain=explain)
        except ModelError as error:
            raise refusal(str(error)) from None
