"""What the configuration says of a registered model: facts that it is served with, the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.tracking.challengers import AppFacts
from voxcast.tracking.promotion import Rule

if TYPE_CHECKING:
    from collections.abc import Collection

    from voxcast.config.schema import Config


def app_facts(config: Config, name: str, devices: Collection[str]) -> AppFacts:
    """Return the facts of an application, with configurations of the measured devices alone."""
    app = config.apps[name]
    return AppFacts(
        name,
        app.version,
        app.parameters,
        [c for c in config.configurations() if c.device in devices],
        config.features.coarse_points,
        config.features.network_points,
        tuple(CHARACTERISTICS) if app.characteristics is None else app.characteristics,
    )


def promotion_rule(config: Config) -> Rule:
    """Return the limits of the promotion rule."""
    limits = config.evaluation
    return Rule(limits.upper_quantile, limits.max_under_request, limits.uncalibrated_factor)
