"""The outlook of a campaign on one device: what it would measure now, and for how long."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.campaigns.cells import repeat_of
from voxcast.campaigns.driver import run_campaign
from voxcast.campaigns.time_left import TimeLeft
from voxcast.campaigns.unmeasured import missing_cells, tried_again
from voxcast.history.run_folders import record_rows
from voxcast.records import App

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.campaigns.plan import CampaignPlan
    from voxcast.campaigns.settings import CampaignSettings
    from voxcast.records import Cell

MAX_SMALLEST = 3


@dataclass(frozen=True)
class Outlook:
    """What a campaign would measure now.

    Attributes
    ----------
    total, left : int
        Runs of the plan, and those that are not on record, or are tried again.
    left_s : float
        Expected seconds of the runs left.
    failed, failed_s : int, float
        Those of the runs left that failed before; their expected seconds.
    shortest_s : float
        Expected seconds of the shortest of them; 0 if none is left.
    repeats, repeats_s : int, float
        Runs that come in addition if other work disturbs all that are left, with those that it
        disturbed before; their expected seconds. 0 if none is left.
    other_version : bool
        Whether the runs on record are all of another version of an application, so that its times
        are too.
    trusted : bool
        Whether the times are based on a run on record, or on what the application states.
    """

    total: int
    left: int
    left_s: float
    failed: int
    failed_s: float
    shortest_s: float
    repeats: int
    repeats_s: float
    other_version: bool
    trusted: bool


def outlook(settings: CampaignSettings, plan: CampaignPlan) -> Outlook:
    """Return the outlook of ``plan`` beside the records in the folder of its runs."""
    rows = record_rows(settings.runs)
    again = tried_again(plan.cells, rows, settings.conditions.time_limit_s)
    missing = missing_cells(plan.cells, rows, again, noisy=False)
    times = TimeLeft(plan.cells, plan.expected_s)
    for key, cell in plan.cells.items():
        if key not in missing:
            times.finish(key, cell, rows[key]["runtime_s"])
    expected_s = [times.cell_s(key, cell) for key, cell in missing.items()]
    failed = [key for key in again if rows[key]["outcome"] == "failed"]
    disturbed = {key for key, row in rows.items() if row["noisy"]}
    repeated_s = [
        times.cell_s(key, cell)
        for key, cell in plan.cells.items()
        if key in missing or (key in disturbed and missing and repeat_of(cell).key not in rows)
    ]
    finished = {key: row for key, row in rows.items() if key not in missing}
    other_version = bool(_apps_of_other_versions(plan, finished))
    stated = all(map(states_times, settings.apps.values())) and not other_version
    return Outlook(
        total=len(plan.cells),
        left=len(missing),
        left_s=sum(expected_s),
        failed=len(failed),
        failed_s=sum(times.cell_s(key, plan.cells[key]) for key in failed),
        shortest_s=min(expected_s, default=0.0),
        repeats=len(repeated_s),
        repeats_s=sum(repeated_s),
        other_version=other_version,
        trusted=len(missing) < len(plan.cells) or stated,
    )


def _apps_of_other_versions(plan: CampaignPlan, rows: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the planned applications of which only other versions were ever measured."""
    planned = {(cell.app, cell.app_version) for cell in plan.cells.values()}
    measured = {(row["app"], row["app_version"]) for row in rows.values()}
    of_other = {app for app, _ in measured} - {app for app, _ in measured & planned}
    return of_other & {app for app, _ in planned}


def states_times(app: App) -> bool:
    """Tell whether an application states its times, so that they are not mere defaults."""
    defaults = App.expected_startup_s, App.expected_s_per_mvoxel
    return (app.expected_startup_s, app.expected_s_per_mvoxel) != defaults


def measure_smallest(settings: CampaignSettings, plan: CampaignPlan) -> Mapping[str, Any] | None:
    """Measure and record the run of ``plan`` with the smallest image, if it is not on record.

    It tells the order of magnitude of an application that was never measured. If it fails, its
    image may be the reason: the next smallest is tried, up to `MAX_SMALLEST` of them. Images that
    failed before come last.

    Returns
    -------
    mapping or None
        The row of the last run; None if the plan is empty.
    """
    rows, row = record_rows(settings.runs), None
    failed = {plan.cells[key].volume_id for key in plan.cells.keys() & rows.keys()
              if rows[key]["outcome"] == "failed"}  # fmt: skip
    ordered = sorted(
        plan.cells.items(),
        key=lambda entry: (entry[1].volume_id in failed, plan.expected_s.get(entry[0], 1.0)),
    )
    by_volume: dict[str, tuple[str, Cell]] = {}
    for key, cell in ordered:
        by_volume.setdefault(cell.volume_id, (key, cell))
    settings = dataclasses.replace(settings, stop_after_s=None, repeat_noisy_s=0.0)
    for key, cell in list(by_volume.values())[:MAX_SMALLEST]:
        smallest = dataclasses.replace(plan, cells={key: cell}, anchors=[])
        run_campaign(settings, smallest)
        row = record_rows(settings.runs).get(key)
        if row is None or row["outcome"] != "failed":
            break
    return row
