"""Measure what is missing of the campaign on one device; the table may be empty and says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.profiling.campaign import profile_device


@exits_cleanly
def main() -> int:
    """Profile on the device named by the one argument."""
    if len(sys.argv) != 2:
        raise ConfigError("needs one device", sys.argv[0], "e.g. cpu")
    device, cfg = sys.argv[1], config.load()
    catalogue = Path("data/catalogue/catalogue.parquet")
    if not catalogue.is_file():
        raise ConfigError("no such file", catalogue, "run `dvc repro catalogue`")
    campaign = cfg.campaign
    profiles = profile_device(
        device,
        cfg.apps(),
        pd.read_parquet(catalogue),
        cfg.configurations(device),
        Path("data/runs") / device,
        volumes=campaign.volumes,
        repeat_volumes=campaign.repeat_volumes,
        repeats=campaign.repeats,
        budget_s=campaign.budget_s,
        time_limit_s=campaign.time_limit_s,
        scale=campaign.scale,
        seed=campaign.seed,
    )
    print(f"{device}: {len(profiles)} profiles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
