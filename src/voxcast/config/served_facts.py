"""Facts from the configuration for a registered model: facts that it is served with, the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.analysis.run_groups import MEAN_ABSOLUTE, repeat_noise
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import Configuration
from voxcast.tracking.challengers import AppFacts
from voxcast.tracking.promotion import Rule

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.config.schema import Config

RARE_RUNS = 3  # fewer runs of an allocation are not offered, where others have more


def app_facts(config: Config, name: str, table: pd.DataFrame) -> AppFacts:
    """Return the facts of an application, with the allocations that were measured.

    Parameters
    ----------
    config : Config
        Of the project.
    name : str
        Name of the application.
    table : DataFrame
        Its training runs.
    """
    app = config.apps[name]
    return AppFacts(
        name,
        app.version,
        app.parameters,
        measured_configurations(config, table),
        config.features.coarse_points,
        config.features.network_points,
        tuple(CHARACTERISTICS) if app.characteristics is None else app.characteristics,
        noise_floor(table),
    )


def measured_configurations(config: Config, table: pd.DataFrame) -> list[Configuration]:
    """Return the allocations of training runs, the smallest first; rare ones are left out.

    Parameters
    ----------
    table : DataFrame
        Training runs.
    """
    counts = table.groupby(["gpus", "device", "cpus"]).size()
    usual = counts[counts >= min(RARE_RUNS, counts.max())]
    configured = {c.device: c for c in config.configurations()}
    return [
        replace(
            configured.get(str(device), Configuration(str(device), 1)),
            cpus=int(cpus), gpus=int(gpus),
        )
        for gpus, device, cpus in usual.index
    ]  # fmt: skip


def noise_floor(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the mean absolute error that repeats of one run have, by target, in percent.

    See `voxcast.analysis.run_groups.RepeatNoise.error_percent`; empty where no run was repeated.

    Parameters
    ----------
    table : DataFrame
        Training runs of one application.
    """
    parameters = [name for name in table if str(name).startswith("parameter.")]
    # Columns that identify repeats, which the table has in another form or not at all.
    runs = table.assign(
        app_version="",
        mem_limit_bytes=None,
        parameters_json=table[parameters].astype(str).agg(" ".join, axis=1) if parameters else "",
        noisy=table["noisy"].astype(bool),
    )
    floor = {}
    for noise in repeat_noise(runs):
        for target, cv in noise.cv.items():
            if cv.bounded:
                values = (cv.value, cv.low, cv.high)
                value, low, high = (MEAN_ABSOLUTE * percent for percent in values)
                floor[target] = {"value": value, "low": low, "high": high, "runs": noise.runs}
    return floor


def promotion_rule(config: Config) -> Rule:
    """Return the limits of the promotion rule."""
    limits = config.evaluation
    return Rule(limits.upper_quantile, limits.max_under_request, limits.uncalibrated_factor)
