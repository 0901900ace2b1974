"""What the configured campaign would measure on this machine, device by device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.program import check_startable
from voxcast.config.campaign_settings import campaign_settings
from voxcast.errors import ConfigError
from voxcast.measure.campaign import Remaining, remaining
from voxcast.measure.plan import CampaignPlan, CampaignSettings, make_plan
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.config.schema import Config


@dataclass(frozen=True)
class DeviceOutlook:
    """The settings, the plan and the outlook of one device."""

    device: str
    settings: CampaignSettings
    plan: CampaignPlan
    outlook: Remaining


def device_outlooks(config: Config, catalogue: pd.DataFrame, runs: Path) -> list[DeviceOutlook]:
    """Return the outlook of every configured device; none where recorded runs are used.

    Parameters
    ----------
    catalogue : DataFrame
        The catalogue of the image set.
    runs : Path
        Folder with a folder of runs for each device.
    """
    if config.campaign.history:
        return []
    devices = []
    for device in config.devices:
        settings = campaign_settings(config, runs / device, device)
        plan = make_plan(settings, catalogue)
        devices.append(DeviceOutlook(device, settings, plan, remaining(settings, plan)))
    return devices


def check_measurable(devices: list[DeviceOutlook], budget_s: float | None) -> None:
    """Check that at least one run can be measured in the time, or is on record.

    Raises
    ------
    ConfigError
        If no configuration fits this machine, or the shortest run would take longer than
        ``budget_s``.
    RunError
        If the program or the container of an application is missing.
    """
    if not any(entry.outlook.total for entry in devices):
        notes = [note for entry in devices for note in entry.plan.notes]
        raise ConfigError("there is nothing to measure here", "--cpus", "; ".join(notes) or None)
    for entry in devices:
        if entry.outlook.left:
            for cell in {(c.app, c.configuration): c for c in entry.plan.cells.values()}.values():
                check_startable(entry.settings.apps[cell.app], cell.configuration)
    if any(entry.outlook.left < entry.outlook.total for entry in devices):
        return
    if not all(entry.outlook.trusted for entry in devices):
        return  # the smallest image is measured first
    shortest_s = min(entry.outlook.shortest_s for entry in devices if entry.outlook.left)
    if budget_s is not None and shortest_s > budget_s:
        hours = math.ceil(10 * shortest_s / 3600) / 10
        raise ConfigError(
            f"the shortest run is expected to take {format_seconds(shortest_s)}",
            "--time-budget",
            f"give at least --time-budget {hours:g}h",
        )
