"""The champion as a client uses it: loaded in this process, or behind an address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from voxcast.images.headers import read_header
from voxcast.images.volumes import POINTS, coarse_to_bytes, load_coarse
from voxcast.images.voxels import MAX_VOXELS
from voxcast.records import Configuration
from voxcast.serving.signature import REQUEST_HEADER_COLUMNS, VOLUME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Rows = list[dict[str, Any]]


class Predict(Protocol):
    """Sends request rows to a model; see `voxcast.serving.client`."""

    def __call__(
        self, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
    ) -> Rows:
        """Return one row of predictions for each row of the request."""


@dataclass(frozen=True)
class Champion:
    """The registered model, with the application and allocations to predict.

    Attributes
    ----------
    predict : callable
        See `Predict`.
    app : str or None
        Application to predict; None for the only application of the model.
    configurations : list of Configuration
        Allocations to predict.
    coarse_points : int
        Maximum number of voxels along an axis of the volume that is sent.
    header_only : bool
        Whether only the header is read.
    max_voxels : int
        A larger volume is refused, unless only the header is read.
    host_classes, measured
        See `voxcast.serving.served_app.ServedApp`; empty behind an address, which does not tell
        them.
    """

    predict: Predict
    app: str | None = None
    configurations: list[Configuration] = field(default_factory=lambda: [Configuration("cpu", 1)])
    coarse_points: int = POINTS
    header_only: bool = False
    max_voxels: int = MAX_VOXELS
    host_classes: tuple[str, ...] = ()
    measured: tuple[tuple[str, int, int], ...] = ()

    def request_rows(
        self, image: Path, configurations: Sequence[Configuration] | None = None
    ) -> Rows:
        """Return the rows of a request for an image, one for each configuration.

        Parameters
        ----------
        image : Path
            A NIfTI file.
        configurations : sequence of Configuration, optional
            Replaces `configurations` of the champion.

        Raises
        ------
        ImageError
            If the image cannot be used.
        """
        row: dict[str, Any] = {} if self.app is None else {"app": self.app}
        columns = read_header(image).columns()
        if not self.header_only:
            coarse = load_coarse(image, self.coarse_points, self.max_voxels)
            row[VOLUME] = coarse_to_bytes(coarse)
        for name in REQUEST_HEADER_COLUMNS:
            value = columns[name]
            row[name] = float(value) if isinstance(value, int) else value
        return [
            {**row, "device": c.device, "cpus": float(c.cpus), "gpus": float(c.gpus)}
            for c in (self.configurations if configurations is None else configurations)
        ]
