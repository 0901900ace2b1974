"""Measure the missing runs of the campaign on one device, or take recorded runs of a history."""

from __future__ import annotations

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.config.campaigns import campaign_settings
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.images.catalogue import RECORDED_IMAGES, check_recorded
from voxcast.images.image_set import recipes_in
from voxcast.measure.campaign import profile_device
from voxcast.measure.plan import make_plan
from voxcast.runs.series import MEASURED
from voxcast.runs.store import write_recorded

IMAGES = Path("data/images")
CATALOGUE = Path("data/catalogue/catalogue.parquet")


@exits_cleanly
def main() -> int:
    """Profile on the device named by the argument."""
    if len(sys.argv) != 2:
        raise ConfigError("needs exactly one device", sys.argv[0], "e.g. cpu")
    device, cfg = sys.argv[1], config.load()
    if not CATALOGUE.is_file():
        raise ConfigError("no such file", CATALOGUE, "run `dvc repro catalogue`")
    catalogue, tables = pd.read_parquet(CATALOGUE), Path("data/runs") / device
    history = cfg.campaign.history
    if history:
        for batch in history:
            recorded = Path(batch) / RECORDED_IMAGES
            if recorded.is_file():
                check_recorded(CATALOGUE.parent, recorded, require_all=False)
        volumes = set(catalogue["volume_id"].dropna())
        runs = write_recorded(tables, history, device, set(cfg.apps), volumes)
    else:
        settings = campaign_settings(cfg, MEASURED / device, device)
        plan = make_plan(settings, catalogue, recipes_in(IMAGES))
        runs = profile_device(device, settings, plan, tables)
    print(f"{device}: {len(runs)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
