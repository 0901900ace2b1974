"""An upload to the service against reading the same image in this process; prints JSON.

The image is the bundled template at 1 mm in a field of view of 256 x 256 x 176, some megabytes
compressed. Times are taken in turn, because the machine drifts.
"""

from __future__ import annotations

import functools
import gzip
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from live_service import live_service, planted_project
from timing import machine, seconds

REPEATS = 9
BOUND = 2.5
SHAPE = (256, 256, 176)


def head() -> bytes:
    """Return a head as the bytes of a ``.nii.gz`` file."""
    import nibabel
    import numpy as np
    from nilearn.datasets import load_mni152_template

    template = np.asarray(load_mni152_template(resolution=1).dataobj, dtype=np.float32)
    voxels = np.zeros(SHAPE, np.int16)
    cut = template[:, :, : SHAPE[2]] / template.max()
    start = [(n - m) // 2 for n, m in zip(SHAPE, cut.shape, strict=True)]
    part = tuple(slice(a, a + m) for a, m in zip(start, cut.shape, strict=True))
    noise = np.random.default_rng(0).normal(0, 4, cut.shape)
    voxels[part] = np.where(cut > 0, np.abs(400 * cut + noise), 0)
    image = nibabel.Nifti1Image(voxels, np.eye(4))
    image.set_sform(np.eye(4), code=1)
    return gzip.compress(image.to_bytes(), 6, mtime=0)


def read(path: Path) -> None:
    """Read header and voxels, and compute all characteristics, without a cache."""
    from voxcast.images.summary import Grids, summarise
    from voxcast.images.volume import POINTS, Volume

    summarise(Volume.open(path), Grids(POINTS), 10**9, {})


def main() -> int:
    """Measure, and print the ratios."""
    content = head()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.nii.gz"
        path.write_bytes(content)
        project = planted_project(Path(folder))
        with live_service(project, Path(folder) / "log") as service, httpx.Client() as client:

            def upload() -> None:
                url = f"{service.url}/images?app=segment"
                client.post(url, content=content, timeout=300).raise_for_status()

            actions: dict[str, Callable[[], None]] = {
                "read": functools.partial(read, path),
                "images": upload,
            }
            for action in actions.values():
                action()
            idle_bytes = service.rest()
            times: dict[str, list[float]] = {name: [] for name in actions}
            for _ in range(REPEATS):
                for name, action in actions.items():
                    times[name].append(seconds(action))
            peak_bytes = service.peak_bytes
    figures: dict[str, Any] = {
        "machine": machine(),
        "file_bytes": len(content),
        "shape": list(SHAPE),
        **{f"{name}_s": statistics.median(values) for name, values in times.items()},
        **{
            f"{name}_over_read": statistics.median(
                a / b for a, b in zip(times[name], times["read"], strict=True)
            )
            for name in ("images",)
        },
        "peak_above_idle_bytes": peak_bytes - idle_bytes,
        "bound_over_read": BOUND,
    }
    print(json.dumps(figures, indent=2))
    return int(figures["images_over_read"] > BOUND)


if __name__ == "__main__":
    sys.exit(main())
