"""The facts of an application that a registered model is served with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.tracking.challengers import AppFacts

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
    )
