"""Stage catalogue: headers, characteristics and small volumes of the image set."""

from __future__ import annotations

import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.images.image_set import catalogue_volumes

IMAGES = Path("data/images")
OUT = Path("data/catalogue")


@exits_cleanly
def main() -> int:
    """Write ``data/catalogue``."""
    features = config.load().features
    catalogue_volumes(IMAGES, OUT, features.coarse_points, features.network_points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
