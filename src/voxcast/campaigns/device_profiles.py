"""The stage that measures what is missing of a campaign on one device, and lists its profiles."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from voxcast.campaigns.driver import run_campaign
from voxcast.campaigns.safe_copies import SafeCopies
from voxcast.history.run_folders import write_profiles
from voxcast.history.run_series import PHASES, TRACES
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.campaigns.plan import CampaignPlan
    from voxcast.campaigns.settings import CampaignSettings

logger = logging.getLogger(__name__)


def profile_device(device: str, settings: CampaignSettings, plan: CampaignPlan) -> pd.DataFrame:
    """Measure what is missing of the campaign on ``device`` and write its table of profiles.

    Where nothing can be measured the table is empty, and its notes say why. Runs of an earlier
    call that was interrupted are on record even if the folder has lost them since.

    Parameters
    ----------
    device : str
        Name of the device.
    settings, plan : CampaignSettings, CampaignPlan
        Of this device alone.
    """
    notes = list(plan.notes)
    if not settings.configurations:
        notes.append(
            f"{device}: the configuration does not name it; to measure on this device set "
            f"-S 'device=[cpu,{device}]', or add it to `devices` of your application"
        )
    elif not any(device in app.devices for app in settings.apps.values()):
        notes.append(f"{device}: no application of this campaign can use it")
    for note in notes:
        logger.info(note)
    copies = SafeCopies(settings.runs)
    copies.restore()
    progress = run_campaign(settings, plan, on_record=copies.add)
    if progress.left:
        notes.append(
            f"{device}: stopped at its budget with {progress.left} runs left, about "
            f"{format_seconds(progress.left_s)}; continue with dvc repro -f -s profile@{device}"
        )
        logger.warning(notes[-1])
    for name in (PHASES, TRACES):  # left over from a recorded history
        (settings.runs / name).unlink(missing_ok=True)
    profiles = write_profiles(settings.runs, notes, runs_left=progress.left)
    copies.discard()
    return profiles
