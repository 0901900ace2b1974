"""The campaigns of a project by name, each composed from ``conf/campaign/NAME.yaml``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.config.campaign_settings import campaign_settings
from voxcast.config.composition import CONF_DIR, PARAMS_FILE, compose
from voxcast.config.loading import load, options
from voxcast.errors import ConfigError
from voxcast.files import sha256_of
from voxcast.measure.projects import Campaign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.config.schema import Config

DEFINITION = {"images", "apps", "devices", "campaign"}  # sections that decide what is measured
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
        If there is no such campaign, or it consists of recorded runs.
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
        definition_sha256=sha256_of(config.model_dump(by_alias=True, include=DEFINITION)),
        characteristics=config.features.characteristics,
    )


def _composed(name: str, overrides: Sequence[str]) -> Config:
    names = options(Path(CONF_DIR, "campaign"))
    if name not in names:
        raise ConfigError("unknown campaign", name, f"choose from {', '.join(names)}")
    with tempfile.TemporaryDirectory() as folder:
        composed = Path(folder) / PARAMS_FILE
        compose(composed, [f"campaign={name}", *overrides])
        changes = " ".join([f"campaign={name}", *overrides])
        config = load(composed, label=f"{CONF_DIR} with {changes}")
    if config.campaign.history:
        raise ConfigError("is a recorded campaign: there is nothing to measure", name)
    return config
