"""Predictions of a campaign's cells by the registered model, for what their jobs ask for first."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.api.question import question_cache
from voxcast.errors import ConfigError, ModelError, one_line
from voxcast.records import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.campaign import CellForecast, Forecast
    from voxcast.records import Cell
    from voxcast.serving.champion import Champion
    from voxcast.serving.served_app import ServedApp

CONFIDENCE = 0.95  # of the upper bounds

logger = logging.getLogger(__name__)


def cell_forecasts(cluster: Cluster, folder: Path) -> Forecast:
    """Return what predicts the cells of a campaign on the nodes of a cluster.

    Cells are left out that the registered model of the project in ``folder`` has not learned: of
    another application, version or parameters, or outside the measured range.
    """
    return partial(_forecasts, cluster, folder)


def _forecasts(
    cluster: Cluster, folder: Path, cells: Mapping[str, Cell], paths: Mapping[str, Path]
) -> dict[str, CellForecast]:
    try:
        from voxcast.serving.prediction_service import PredictionService

        model = PredictionService.of_project(folder)
    except ModelError as error:
        logger.debug("no predictions: %s", one_line(error))
        return {}
    except ModuleNotFoundError as error:
        logger.info(
            "no predictions: %s is not installed; `pip install voxcast[serve]`", error.name
        )
        return {}
    forecasts: dict[str, CellForecast] = {}
    for app in sorted({cell.app for cell in cells.values()}):
        try:
            served = model.bundle.app_named(app)
            learned_cells = {k: c for k, c in cells.items() if _is_learned(c, served)}
            if learned_cells:
                champion = replace(model.champion(app), cache=question_cache(folder))
                forecasts |= _of_app(champion, cluster, learned_cells, paths)
        except ModelError as error:
            logger.debug("no predictions of %s: %s", app, one_line(error))
    return forecasts


def _is_learned(cell: Cell, served: ServedApp) -> bool:
    return (
        (cell.app, cell.app_version) == (served.name, served.promotion.app_version)
        and cell.parameters == served.parameters
        and bool(cell.volume_id)
    )


def _of_app(
    champion: Champion, cluster: Cluster, cells: Mapping[str, Cell], paths: Mapping[str, Path]
) -> dict[str, CellForecast]:
    """Return the forecasts of cells of one application, the largest over the nodes that fit."""
    from voxcast.serving.site_candidates import SiteCandidates, predict_images

    sizes = {key: _size(cell.configuration) for key, cell in cells.items()}
    try:
        candidates = cluster.candidates(list(dict.fromkeys(sizes.values())))
    except ConfigError:
        return {}
    images = list(dict.fromkeys(paths[cell.volume_id] for cell in cells.values()))
    predictions = predict_images(champion, images, SiteCandidates(cluster, candidates), CONFIDENCE)
    rows: dict[tuple[str, Configuration], list[Mapping[str, object]]] = defaultdict(list)
    for image in predictions:
        for candidate, row in zip(candidates, image.by_candidate, strict=True):
            rows[image.image, candidate.configuration].append(row)
    forecasts = {}
    for key, cell in cells.items():
        of_cell = rows[str(paths[cell.volume_id]), sizes[key]]
        if of_cell and all(row["calibrated"] for row in of_cell):
            forecasts[key] = _largest(of_cell)
    return forecasts


def _largest(rows: Sequence[Mapping[str, object]]) -> CellForecast:
    from voxcast.jobs.campaign import CellForecast

    names = ("runtime_s_median", "runtime_s_upper", "peak_rss_bytes_upper")
    return CellForecast(*(max(float(str(row[name])) for row in rows) for name in names))


def _size(configuration: Configuration) -> Configuration:
    """Return the model's forecast of a configuration."""
    return Configuration(configuration.device, configuration.cpus, configuration.gpus)
