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
from voxcast.images.image_set import catalogue_volumes
from voxcast.images.summary import Grids

IMAGES = Path("data/images")
OUT = Path("data/catalogue")


@exits_cleanly
def main() -> int:
    """Write ``data/catalogue``."""
    cfg = config.load()
    grids = Grids(cfg.features.coarse_points, cfg.features.network_points)
    catalogue_volumes(cfg.images, IMAGES, OUT, grids, cfg.features.max_voxels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
