"""The configuration: schema of ``params.yaml``, strict loading, composition, drift.

``conf/`` is the truth, ``params.yaml`` its composed and committed lock file. Stages call `load`
and get frozen dataclasses; nothing else reads YAML. The library below takes plain arguments.
``conf/submit.yaml`` says what this site is today: `load_submit` composes it whenever it is asked.
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
from voxcast.config.submit import Here, Site, load_submit

__all__ = [
    "CONF_DIR",
    "PARAMS_FILE",
    "AppConfig",
    "CampaignConfig",
    "Config",
    "DeviceConfig",
    "EvaluationConfig",
    "FeaturesConfig",
    "Here",
    "ImagesConfig",
    "Site",
    "TuneConfig",
    "compose",
    "drifts",
    "load",
    "load_app",
    "load_device",
    "load_submit",
]
