"""Measure what the cache of questions saves: reading images, hashing their files, finding them.

The images are those of a folder (``--images``), by default generated heads; each is read with a
small volume for a network, as a question does. Writes ``results/cache/volume_summary.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.content_cache import ContentCache, entries_of
from voxcast.files import sha256_file, write_json
from voxcast.images.cohort import write_cohort
from voxcast.images.header import MAX_VOXELS
from voxcast.images.network_volume import POINTS as NETWORK_POINTS
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import POINTS, Volume
from voxcast_apps.heads.grids import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OUT = Path("results/cache/volume_summary.json")
SIZES, SEED, SUBJECTS = Sizes((2_000_000, 8_000_000), (96, 320)), 616, 4
GRIDS = Grids(POINTS, NETWORK_POINTS)
REPEATS = 3


def median_ms(action: Callable[[], object]) -> float:
    """Return the median of a few timings, in ms."""
    times_s = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times_s.append(time.perf_counter() - start)
    return 1000 * statistics.median(times_s)


def measured(path: Path, cache: ContentCache) -> dict[str, float | str]:
    """Return the times of one image in ms; its file is in memory of the system."""

    def ask(chosen: ContentCache | None) -> object:
        return summarise(Volume.open(path), GRIDS, MAX_VOXELS, {}, chosen)

    ask(cache)
    return {
        "image": path.name,
        "voxels": Volume.open(path).header.voxels,
        "file_bytes": path.stat().st_size,
        "read_ms": round(median_ms(lambda: ask(None)), 1),
        "hash_ms": round(median_ms(lambda: sha256_file(path)), 2),
        "hit_ms": round(median_ms(lambda: ask(cache)), 2),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="folder of .nii and .nii.gz files")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        if args.images is None:
            heads = write_cohort(Path(folder) / "heads", seed=SEED, subjects=SUBJECTS, sizes=SIZES)
            paths = [Path(head.path) for head in heads]
        else:
            paths = sorted(args.images.glob("*.nii*"))
        cache = ContentCache(Path(folder) / "cache")
        rows = [measured(path, cache) for path in paths]
        entry_bytes = [entry.size_bytes for entry in entries_of(cache.folder)]
    totals = {
        name: round(sum(float(row[name]) for row in rows), 1)
        for name in ("read_ms", "hash_ms", "hit_ms")
    }
    content = {
        "images": rows, "total": totals,
        "times_faster": round(totals["read_ms"] / totals["hit_ms"]),
        "hash_share": round(totals["hash_ms"] / totals["read_ms"], 4),
        "largest_entry_bytes": max(entry_bytes),
    }  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.out, content)
    print(content["total"], content["times_faster"], content["hash_share"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
