"""How fast this machine is, by short runs of the applications of the champion.

The speeds of all machines are brought up to date after further runs.
"""

from __future__ import annotations

import dataclasses
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from voxcast.errors import UnlearnedError, VoxcastError, one_line
from voxcast.serving.bundle import Bundle
from voxcast.serving.machines import MACHINES, update_machines
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService

INTERVAL = (0.05, 0.95)
# Of the heads that are generated where the project has none here.
VOXELS, AXIS_VOXELS = (350_000, 550_000, 1_200_000), (48, 160)

logger = logging.getLogger(__name__)


def speeds_of(bundle: Bundle, host: str) -> list[dict[str, Any]]:
    """Update the file of machines from the runs on record, and return the speeds of one.

    A speed is a multiple of the reference machine's: a median, and quantiles at 5 and 95 %.
    ``in_sitting`` is true for the speed of a sitting that goes on, false for one to come.
    """
    update_machines(Path(), bundle)
    service, rows = PredictionService(bundle, MACHINES), []
    for app in bundle.apps:
        speeds = service.forecaster(app).speeds
        if speeds is None:
            continue
        sitting = speeds.current_sitting(host, datetime.now(UTC))
        estimate = speeds.estimate(host, sitting)
        speed, lower, upper = (estimate.speed(p) for p in (0.5, *INTERVAL))
        rows.append({
            "app": app, "speed": speed, "lower": lower, "upper": upper,
            "in_sitting": sitting is not None, "runs": speeds.runs(host),
            "calibrated": speeds.knows(host, sitting), "reference": speeds.reference,
        })  # fmt: skip
    return rows


def measure_locally(bundle: Bundle, budget_s: float) -> tuple[int, int]:
    """Make anchor runs of the model's applications; return how many were made and are left."""
    from voxcast import config
    from voxcast.images.sources import ImageChoice
    from voxcast.images.summary import Grids
    from voxcast.measure import campaign

    params = config.load(config.PARAMS_FILE)
    apps = {}
    for name, served in bundle.apps.items():
        app = config.load_app(f"{config.CONF_DIR}/app", name)
        if app.input != "volume":
            continue
        if app.version != served.promotion.app_version:
            logger.warning(
                "%s is left out: version %s was learned, and %s is here",
                name, served.promotion.app_version, app.version,
            )  # fmt: skip
            continue
        apps[name] = dataclasses.replace(app, parameters=served.parameters)
    features, count = params.features, campaign.HOST_VOLUMES
    images = ImageChoice("cohort", None, (), 7019, count, "h", VOXELS, AXIS_VOXELS, ())
    progress = campaign.measure_host(
        apps,
        images,
        budget_s,
        Grids(features.coarse_points, features.network_points),
        features.max_voxels,
    )
    if progress.left:
        logger.info(
            "%d runs are left: run the same command again to continue, or allow more time with "
            "--time-budget", progress.left,
        )  # fmt: skip
    return len(progress.runs), progress.left


def update_after_runs(folder: Path) -> None:
    """Write the speeds of machines of a project again, if it has a champion.

    A failure is logged: runs and models are not lost by it.
    """
    try:
        bundle = ModelStore.of(folder).open()
        update_machines(folder, bundle)
    except UnlearnedError:
        return
    except VoxcastError as error:
        logger.warning("the speeds of machines stay as they were: %s", one_line(error))
