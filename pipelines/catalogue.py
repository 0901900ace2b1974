"""Stage catalogue: headers, characteristics and small volumes of the image set.

Volumes of earlier image sets stay on record.
"""

from __future__ import annotations

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.images.characteristics import load_lab_characteristics
from voxcast.images.image_set import catalogue_volumes, image_set_label, log_problems

IMAGES = Path("data/images")
OUT = Path("data/catalogue")


@exits_cleanly
def main() -> int:
    """Write ``data/catalogue``."""
    cfg = config.load()
    catalogue_volumes(
        IMAGES,
        OUT,
        cfg.features.coarse_points,
        cfg.features.network_points,
        cfg.features.max_voxels,
        image_set_label(cfg.images),
        load_lab_characteristics(cfg.features.characteristics, Path()),
    )
    log_problems(OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
