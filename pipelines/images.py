"""Stage images: generate the cohort, or list the user's volumes by reference."""

from __future__ import annotations

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.images.image_set import LIST_FILE, list_volumes

FOLDER = Path("data/images")
SOURCES = Path("data/sources.tsv")


@exits_cleanly
def main() -> int:
    """Write ``data/images``."""
    files = list_volumes(config.load().images, FOLDER, hashes=SOURCES)
    print(f"{len(files)} volumes listed in {FOLDER / LIST_FILE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
