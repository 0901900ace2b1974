"""Measure what is missing of the campaign on one device, or take what a history recorded on it."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.campaigns.device_profiles import profile_device
from voxcast.campaigns.recorder import Conditions
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.history.recorded_runs import write_recorded
from voxcast.images.participants import PARTICIPANTS, recipe_of
from voxcast.images.recorded import RECORDED_IMAGES, check_recorded

IMAGES = Path("data/images")
CATALOGUE = Path("data/catalogue/catalogue.parquet")


@exits_cleanly
def main() -> int:
    """Profile on the device named by the one argument."""
    if len(sys.argv) != 2:
        raise ConfigError("needs one device", sys.argv[0], "e.g. cpu")
    device, cfg = sys.argv[1], config.load()
    if not CATALOGUE.is_file():
        raise ConfigError("no such file", CATALOGUE, "run `dvc repro catalogue`")
    rows, folder = pd.read_parquet(CATALOGUE), Path("data/runs") / device
    campaign = cfg.campaign
    if campaign.history:
        for batch in campaign.history:
            kept = Path(batch) / RECORDED_IMAGES
            if kept.is_file():
                check_recorded(CATALOGUE.parent, kept, whole=False)
        volumes = set(rows["volume_id"].dropna())
        profiles = write_recorded(folder, campaign.history, device, set(cfg.apps), volumes)
    else:
        made = cfg.images.kind == "cohort" and (IMAGES / PARTICIPANTS).is_file()
        profiles = profile_device(
            device,
            cfg.apps,
            rows,
            cfg.configurations(device),
            folder,
            sweeps=campaign.sweeps,
            conditions=Conditions(campaign.time_limit_s, campaign.stall_s),
            recipes=recipe_of(IMAGES) if made else {},
            budget_s=campaign.budget_s,
            stop_after_s=campaign.stop_after_s,
            seed=campaign.seed,
            parallel=campaign.parallel,
            anchors=campaign.anchors,
        )
    print(f"{device}: {len(profiles)} profiles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
