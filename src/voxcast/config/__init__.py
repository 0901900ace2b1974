"""The configuration: schema of ``params.yaml``, strict loading, composition, drift.

``conf/`` is the truth, ``params.yaml`` its composed and committed lock file. Stages call `load`
and get frozen dataclasses; nothing else reads YAML. The library below takes plain arguments.
"""

from voxcast.config.composition import CONF_DIR, compose, drifts
from voxcast.config.loading import PARAMS_FILE, load, load_app, load_device
from voxcast.config.schema import (
    AppConfig,
    CampaignConfig,
    Config,
    DeviceConfig,
    EvaluationConfig,
    FeaturesConfig,
    ImagesConfig,
    TuneConfig,
)

__all__ = [
    "CONF_DIR",
    "PARAMS_FILE",
    "AppConfig",
    "CampaignConfig",
    "Config",
    "DeviceConfig",
    "EvaluationConfig",
    "FeaturesConfig",
    "ImagesConfig",
    "TuneConfig",
    "compose",
    "drifts",
    "load",
    "load_app",
    "load_device",
]
