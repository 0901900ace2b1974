"""The settings of campaigns, from ``params.yaml`` or composed from ``conf/campaign/NAME.yaml``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from voxcast.config.compose import CONF_DIR, PARAMS_FILE, compose
from voxcast.config.load import check_option, load
from voxcast.config.schema import Config
from voxcast.errors import ConfigError
from voxcast.files import sha256_of
from voxcast.measure.campaign import Campaign
from voxcast.measure.plan import CampaignSettings
from voxcast.measure.trace import Conditions

CAMPAIGNS, HISTORY = Path("data/campaigns"), Path("data/history")


def project_campaign(name: str, overrides: Sequence[str] = ()) -> Campaign:
    """Return the campaign ``name`` of the project in the current folder.

    Parameters
    ----------
    overrides : sequence of str
        Changes to the configuration, ``KEY=VALUE``.

    Raises
    ------
    ConfigError
        If the campaign is unknown, or it consists of recorded runs.
    """
    config = _composed(name, overrides)
    folder = CAMPAIGNS / name
    return Campaign(
        name=name,
        settings=campaign_settings(config, folder / "runs"),
        images=config.images,
        coarse_points=config.features.coarse_points,
        network_points=config.features.network_points,
        max_voxels=config.features.max_voxels,
        folder=folder,
        history=HISTORY / name,
        definition_sha256=sha256_of(config.definition()),
        characteristics=config.features.characteristics,
    )


def _composed(name: str, overrides: Sequence[str]) -> Config:
    check_option(Path(CONF_DIR, "campaign"), name, "campaign")
    with tempfile.TemporaryDirectory() as folder:
        composed = Path(folder) / PARAMS_FILE
        compose(composed, [f"campaign={name}", *overrides])
        changes = " ".join([f"campaign={name}", *overrides])
        config = load(composed, label=f"{CONF_DIR} with {changes}")
    if config.campaign.history:
        raise ConfigError("is a recorded campaign: there is nothing to measure", name)
    return config


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
        stop_after_s=campaign.budget_s,
        parallel=campaign.parallel,
    )
