"""The champion as a client uses it: loaded in this process, or behind an address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import RequestError
from voxcast.files import canonical_json
from voxcast.images.header import log_itk_refusals
from voxcast.images.network_volume import network_to_bytes
from voxcast.images.sources import subject_of
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast.records import Configuration
from voxcast.serving.rows import header_row
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from voxcast.content_cache import ContentCache
    from voxcast.serving.bundle import ServedApp
    from voxcast.serving.client import ServedFacts

    Rows = list[dict[str, Any]]
    Predict = Callable[..., Rows]  # of rows, a quantile and `explain`; here or on a server


def allocation_columns(configuration: Configuration) -> dict[str, Any]:
    """Return the columns of a request for an allocation."""
    return {
        "device": configuration.device,
        "cpus": float(configuration.cpus),
        "gpus": float(configuration.gpus),
    }


def in_allocations(
    rows: Iterable[Mapping[str, Any]], configurations: Sequence[Configuration]
) -> Rows:
    """Return each row once for each allocation, which replaces its own."""
    return [{**row, **allocation_columns(c)} for row in rows for c in configurations]


def predicted_or_refused(
    predict: Predict, rows: Rows, quantile: float, *, explain: bool = False
) -> list[dict[str, Any] | RequestError]:
    """Return the prediction of each row, or why it is refused; then halves are asked again."""
    try:
        return list(predict(rows, quantile, explain=explain)) if rows else []
    except RequestError as error:
        if len(rows) == 1:
            return [error]
    first, second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    return [
        *predicted_or_refused(predict, first, quantile, explain=explain),
        *predicted_or_refused(predict, second, quantile, explain=explain),
    ]


@dataclass(frozen=True)
class Champion:
    """The registered model, with the application and allocations to predict.

    Attributes
    ----------
    predict : callable
        Returns a prediction for each row, see
        `voxcast.serving.prediction_service.PredictionService.predict`.
    app : str
        Application to predict.
    facts : ServedApp or ServedFacts
        The application as the model serves it.
    network_points : int
        Size of the small volume that the model's network wants, 0 if it wants none.
    configurations : list of Configuration
        Allocations to predict.
    header_only : bool
        Whether only the header is read.
    host : str, optional
        The machine to predict for: an id, a host class or a node type; by default the one on which
        the model runs.
    parameters : mapping
        Parameters of the application that differ from its defaults.
    volumes : dict, optional
        Is given the facts of each image whose voxels are read, by path; see
        `voxcast.images.summary.VolumeSummary`.
    cache : ContentCache, optional
        Has what voxels tell of images that were asked about before; see
        `voxcast.images.summary`.
    reads_kernels : bool
        Whether the model learned how speeds follow a reading of the kernels.
    reading : callable, optional
        Returns what the kernels take on this machine now, see `voxcast.measure.metronome`.
    """

    predict: Predict
    app: str
    facts: ServedApp | ServedFacts
    network_points: int
    configurations: list[Configuration]
    header_only: bool = False
    host: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    volumes: dict[str, dict[str, Any]] | None = None
    cache: ContentCache | None = None
    reads_kernels: bool = False
    reading: Callable[[], float | None] | None = None

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
        row: dict[str, Any] = {"app": self.app}
        if self.host is not None:
            row["host"] = self.host
        if self.parameters:
            row["parameters_json"] = canonical_json(dict(self.parameters))
        volume = Volume.open(image)
        log_itk_refusals([(image, volume.itk_refusal)])
        row |= header_row(volume.header)
        # Where the header decides, no voxel is read.
        if not self.header_only and (self.facts.characteristics or self.network_points):
            grids = Grids(self.facts.coarse_points, self.network_points)
            summary = summarise(volume, grids, cache=self.cache)
            if summary.network_volume is not None:
                row[VOLUME] = network_to_bytes(summary.network_volume)
            row |= summary.characteristics
            if self.volumes is not None:
                facts = summary.facts(subject_of(image), grids.coarse_points)
                self.volumes[str(image)] = facts
        if self.reading is not None and (kernel_s := self.reading()) is not None:
            row["kernel_s"] = kernel_s
        chosen = self.configurations if configurations is None else configurations
        return in_allocations([row], chosen)
