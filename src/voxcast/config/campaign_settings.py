"""The settings of a campaign from ``params.yaml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.measure.plan import CampaignSettings
from voxcast.measure.trace import Conditions

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.config.schema import Config


def campaign_settings(config: Config, runs: Path, device: str | None = None) -> CampaignSettings:
    """Return the settings of the campaign in ``config``, of all devices or of one.

    Parameters
    ----------
    runs : Path
        Folder for the runs.
    """
    campaign = config.campaign
    return CampaignSettings(
        apps=config.apps,
        runs=runs,
        sweeps=campaign.sweeps,
        configurations=tuple(config.configurations(device)),
        conditions=Conditions(
            campaign.time_limit_s, campaign.stall_s, metronome=campaign.metronome
        ),
        seed=campaign.seed,
        anchors=campaign.anchors,
        budget_s=campaign.budget_s,
        stop_after_s=campaign.stop_after_s,
        parallel=campaign.parallel,
    )
