"""Stage catalogue: headers, characteristics and small volumes of the image set."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.images.catalogue import build_catalogue
from voxcast.images.participants import generated_ids
from voxcast.images.sources import read_tsv

IMAGES = Path("data/images")
OUT = Path("data/catalogue")
SHOWN = 10


@exits_cleanly
def main() -> int:
    """Write ``data/catalogue``."""
    features = config.load().features
    files = read_tsv(IMAGES / "images.tsv")
    # The list says which images are meant: a cohort left over from another run has no say.
    made = IMAGES / "participants.tsv"
    ids = generated_ids(IMAGES) if made.is_file() else None
    bad = build_catalogue(files, OUT, features.coarse_points, features.network_points, ids)
    if bad:
        problems = pd.read_parquet(OUT / "catalogue.parquet")["problem"].dropna()
        for problem in problems.iloc[:SHOWN]:
            print(f"voxcast: {problem}", file=sys.stderr)
        note = f"{bad} of {len(files)} volumes cannot be used; see column problem in {OUT}"
        print(f"voxcast: {note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
