"""The configuration: schema of ``params.yaml``, strict loading, composition, drift.

``conf/`` is the source, ``params.yaml`` its composed and committed lock file. Stages call `load`,
which validates it; nothing else reads YAML. The library below takes plain arguments
and frozen dataclasses. ``conf/submit.yaml`` describes the current site: `load_submit` composes it
at each call.
"""

from voxcast.config.load import (
    CONF_DIR,
    PARAMS_FILE,
    compose,
    drifts,
    load,
    load_app,
    load_device,
    options,
)
from voxcast.config.schema import (
    CampaignConfig,
    Config,
    DeviceConfig,
    EvaluationConfig,
    FeaturesConfig,
    TuneConfig,
)
from voxcast.config.site_file import Here, Site, current_site, load_cluster, load_submit
from voxcast.images.sources import ImageChoice

__all__ = [
    "CONF_DIR",
    "PARAMS_FILE",
    "CampaignConfig",
    "Config",
    "DeviceConfig",
    "EvaluationConfig",
    "FeaturesConfig",
    "Here",
    "ImageChoice",
    "Site",
    "TuneConfig",
    "compose",
    "current_site",
    "drifts",
    "load",
    "load_app",
    "load_cluster",
    "load_device",
    "load_submit",
    "options",
]
