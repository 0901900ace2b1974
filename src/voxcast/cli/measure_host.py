"""How fast this machine is, from the runs on record, for ``voxcast measure --host``.

The speeds of machines after further runs, brought up to date at the end of a verb.
"""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.errors import UnlearnedError, VoxcastError, one_line
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from voxcast.serving.bundle import Bundle


SECONDS = 110.0
INTERVAL = (0.05, 0.95)
# Of the heads that are generated where the project has none here.
VOXELS, AXIS_VOXELS = (350_000, 550_000, 1_200_000), (48, 160)

logger = logging.getLogger(__name__)


def measure_host(project: Path | None, seconds: float | None, *, as_json: bool) -> int:
    """Measure the speed of this machine by short runs, and show it.

    Parameters
    ----------
    seconds : float or None
        No run is started that would end later, 110 s by default; 0 starts none.
    """
    folder = projects.find(project)
    if folder is None:
        from voxcast.config.project_files import create_project
        from voxcast.serving.prediction_service import measured_project

        folder = measured_project(create_project)
        logger.info("no project here: the reference model is measured, in %s", folder)
    from voxcast.measure.host import host_class, host_facts
    from voxcast.serving.model_store import ModelStore

    os.chdir(folder)  # all paths are relative to the project
    bundle, facts = ModelStore.of(folder).open(), host_facts()
    content: dict[str, Any] = {"host": facts.host_id, "host_class": host_class(facts)}
    budget_s = SECONDS if seconds is None else seconds
    if budget_s > 0:
        content["before"] = _speeds(bundle, facts.host_id)
        content["measured"], content["left"] = _measure(bundle, budget_s)
    content["apps"] = _speeds(bundle, facts.host_id)
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        _show(content)
    return 0


def _speeds(bundle: Bundle, host: str) -> list[dict[str, Any]]:
    """Update the file of machines from the runs on record, and return the speeds of one.

    A speed is a multiple of the reference machine's: a median, and quantiles at 5 and 95 %.
    ``in_sitting`` is true for the speed of a sitting that goes on, false for one to come.
    """
    from voxcast.serving.machines import MACHINES, update_machines
    from voxcast.serving.prediction_service import PredictionService

    update_machines(Path(), bundle, characteristic_versions(Path()))
    service, rows = PredictionService(bundle, MACHINES), []
    for app in bundle.apps:
        speeds = service.forecaster(app).speeds
        if speeds is None:
            continue
        sitting = speeds.current_sitting(host, datetime.now(UTC))
        estimate = speeds.estimate(host, sitting)
        speed, lower, upper = (
            math.exp(estimate.log_speed + estimate.deviation(p)) for p in (0.5, *INTERVAL)
        )
        rows.append({
            "app": app, "speed": speed, "lower": lower, "upper": upper,
            "in_sitting": sitting is not None, "runs": speeds.runs(host),
            "calibrated": speeds.knows(host, sitting), "reference": speeds.reference,
        })  # fmt: skip
    return rows


def _show(content: dict[str, Any]) -> None:
    from voxcast.models.speeds import SITTING_LASTS

    print(f"machine {content['host']}: {content['host_class']}")
    if "measured" in content:
        print(f"  {content['measured']} runs measured, {content['left']} left of this round")
    apps = content["apps"]
    if not apps:
        print("  the model's runs do not state their machines, so it does not distinguish them")
        return
    rows: list[tuple[str, ...]] = [("", "", "speed", "5 to 95 %", "runs")]
    for title, speeds in (("before", content.get("before", ())), ("now", apps)):
        for row in speeds:
            interval = f"{row['lower']:.2f} to {row['upper']:.2f}"
            label = f"{row['app']}, {title}" if "before" in content else row["app"]
            state = "known" if row["calibrated"] else "not known"
            rows.append((label, state, f"{row['speed']:.2f}", interval, str(row["runs"])))
    print(text_table(rows, "<<>>>", indent="  "))
    references = " and ".join(sorted({row["reference"] for row in apps}))
    print(f"  speeds are multiples of the average of {references}, where most runs were made")
    if any(row["in_sitting"] for row in apps):
        hours = SITTING_LASTS.total_seconds() / 3600
        print(f"  they hold for the last {hours:g} hours; all runs on record are counted")
    if not all(row["calibrated"] for row in apps):
        print("  bounds are wider until the speed is known; `voxcast measure --host` measures it")


def _measure(bundle: Bundle, budget_s: float) -> tuple[int, int]:
    """Make anchor runs of the model's applications; return how many were made and are left."""
    from voxcast import config
    from voxcast.images.characteristics import load_lab_characteristics
    from voxcast.images.sources import ImageChoice
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
        apps[name] = replace(app, parameters=served.parameters)
    grids, count = params.features, campaign.HOST_VOLUMES
    images = ImageChoice("cohort", None, (), 7019, count, "h", VOXELS, AXIS_VOXELS, ())
    progress = campaign.measure_host(
        apps,
        images,
        budget_s,
        (grids.coarse_points, grids.network_points),
        grids.max_voxels,
        load_lab_characteristics(grids.characteristics, Path()),
    )
    if progress.left:
        logger.info(
            "the time did not suffice for %d runs; the same command goes on, and --time-budget "
            "gives it more", progress.left,
        )  # fmt: skip
    return len(progress.runs), progress.left


def update_after_runs(folder: Path) -> None:
    """Write the speeds of machines of a project again, if it has a champion.

    A failure is logged: runs and models are not lost by it.
    """
    from voxcast.serving.machines import update_machines
    from voxcast.serving.model_store import ModelStore

    try:
        bundle = ModelStore.of(folder).open()
        update_machines(folder, bundle, characteristic_versions(folder))
    except UnlearnedError:
        return
    except VoxcastError as error:
        logger.warning("the speeds of machines stay as they were: %s", one_line(error))


def characteristic_versions(folder: Path) -> dict[str, int]:
    """Return the versions of all characteristics, also of a project's."""
    from voxcast import config
    from voxcast.images.characteristics import versions_of

    return versions_of(config.load(folder / config.PARAMS_FILE).features.characteristics)
