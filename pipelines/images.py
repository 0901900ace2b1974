"""Stage images: make the cohort, or list a user's own volumes by reference."""

from __future__ import annotations

import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.images.cohort import write_cohort
from voxcast.images.sources import read_tsv, refresh, write_tsv

FOLDER = Path("data/images")
SOURCES = Path("data/sources.tsv")


@exits_cleanly
def main() -> int:
    """Write ``data/images``."""
    images = config.load().images
    if images.kind == "cohort":
        files = write_cohort(
            FOLDER,
            seed=images.seed,
            subjects=images.subjects,
            sizes=images.sizes,
            label_prefix=images.label_prefix,
        )
    elif images.path is None:
        raise ConfigError("needs a value", "images.path", "set it, e.g. -S images.path=/my/bids")
    else:
        # Rows of other folders are harmless: files are known by their whole path.
        known = read_tsv(SOURCES) if SOURCES.is_file() else []
        files = refresh(known, images.path)
    write_tsv(FOLDER / "images.tsv", files)
    print(f"{len(files)} volumes listed in {FOLDER / 'images.tsv'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
