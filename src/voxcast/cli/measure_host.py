"""How fast this machine is, as far as runs on record tell, for ``voxcast measure --host``.

The speeds of machines after further runs, brought up to date at the end of a verb.
"""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.errors import UnlearnedError, VoxcastError, one_line
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.models.speed.speeds import Speeds
    from voxcast.serving.bundle import Bundle


SECONDS = 110.0
INTERVAL = (0.05, 0.95)
# Of the heads that are generated where the project has none here.
VOXELS, AXIS_VOXELS = (350_000, 550_000, 1_200_000), (48, 160)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AppSpeed:
    """The speed of a machine for an application, as a multiple of the reference machine's.

    Attributes
    ----------
    speed, lower, upper : float
        Median, and quantiles at 5 and 95 %, as answers take it now.
    in_sitting : bool
        Whether this is the speed of a sitting that goes on, or else of one to come.
    runs : int
        Runs on the machine.
    calibrated : bool
        Whether bounds on it are calibrated.
    reference : str
        Id of the reference machine.
    since : str
        Day (ISO) of a lasting change, since which alone runs tell the speed; empty without one.
    """

    app: str
    speed: float
    lower: float
    upper: float
    in_sitting: bool
    runs: int
    calibrated: bool
    reference: str
    since: str = ""

    @classmethod
    def of(cls, app: str, speeds: Speeds, host: str) -> AppSpeed:
        """Return the speed of a machine."""
        sitting = speeds.current_sitting(host, datetime.now(UTC))
        estimate = speeds.estimate(host, sitting)
        speed, lower, upper = (
            math.exp(estimate.log_speed + estimate.deviation(p)) for p in (0.5, *INTERVAL)
        )
        runs, is_known = speeds.runs(host), speeds.knows(host, sitting)
        since = speeds.machines[host].since if host in speeds.machines else ""
        is_current = sitting is not None
        return cls(app, speed, lower, upper, is_current, runs, is_known, speeds.reference, since)


def measure_host(project: Path | None, seconds: float | None, *, as_json: bool) -> int:
    """Measure the speed of this machine by short runs, and show what they told.

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
    from voxcast.models.speed.speeds import SITTING_LASTS
    from voxcast.serving.model_store import ModelStore

    os.chdir(folder)  # all paths are relative to the project
    bundle, facts = ModelStore.of(folder).open(), host_facts()
    before = _speeds(bundle, facts.host_id)
    content: dict[str, Any] = {"host": facts.host_id, "host_class": host_class(facts)}
    after = before
    budget_s = SECONDS if seconds is None else seconds
    if budget_s > 0:
        content["measured"], content["left"] = _measure(bundle, budget_s)
        after = _speeds(bundle, facts.host_id)
        content["before"] = [vars(speed) for speed in before]
    content["apps"] = [vars(speed) for speed in after]
    if as_json:
        print(json.dumps(content, indent=2))
        return 0
    print(f"machine {facts.host_id}: {content['host_class']}")
    if budget_s > 0:
        print(f"  {content['measured']} runs measured, {content['left']} left of this round")
        _show(before, "before")
    _show(after, "after" if budget_s > 0 else "")
    if after:
        references = {speed.reference for speed in after}
        usual = "that of " + " and ".join(sorted(references))
        if references == {facts.host_id}:
            usual = "the average of this machine"
        print(f"  speeds are multiples of {usual}, where most runs were made")
        if any(speed.in_sitting for speed in after):
            hours = SITTING_LASTS.total_seconds() / 3600
            print(
                f"  they hold for the last {hours:g} hours; the number of runs is of all on record"
            )
        for speed in after:
            if speed.since:
                print(f"  {speed.app}: changed for good on {speed.since}; only runs since count")
    else:
        print("  the model's runs do not state their machines, so it does not tell them apart")
    if any(not speed.calibrated for speed in after):
        print("  bounds are wider until the speed is known; `voxcast measure --host` measures it")
    return 0


def _speeds(bundle: Bundle, host: str) -> list[AppSpeed]:
    """Update the file of machines from the runs on record, and return the speeds of one."""
    from voxcast.serving.machines import MACHINES, update_machines
    from voxcast.serving.prediction_service import PredictionService

    update_machines(Path(), bundle, characteristic_versions(Path()))
    service = PredictionService(bundle, MACHINES)
    by_app = {app: service.forecaster(app).speeds for app in bundle.apps}
    return [AppSpeed.of(app, speeds, host) for app, speeds in by_app.items() if speeds is not None]


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


def _show(speeds: Sequence[AppSpeed], title: str) -> None:
    if not speeds:
        return
    rows: list[tuple[str, ...]] = [(title, "", "speed", "5 to 95 %", "runs")]
    for speed in speeds:
        interval = f"{speed.lower:.2f} to {speed.upper:.2f}"
        state = "known" if speed.calibrated else "not known"
        rows.append((speed.app, state, f"{speed.speed:.2f}", interval, str(speed.runs)))
    print(text_table(rows, "<<>>>", indent="  "))


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
