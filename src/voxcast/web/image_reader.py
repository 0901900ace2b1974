"""Reading an image that a client sent, in a process of `voxcast.web.reader_pool`.

The kernel limits the memory of the process. Readers of NIfTI tell by its name whether a file is
compressed, so it is read by a link with such a name.
"""

from __future__ import annotations

import base64
import logging
import math
import resource
import signal
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from voxcast.errors import ImageError, VoxcastError
from voxcast.images import volume as voxels
from voxcast.images.network_volume import network_to_bytes
from voxcast.images.slices import middle_slices
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast.serving.rows import header_row
from voxcast.serving.signature import VOLUME

PLAIN, COMPRESSED = "image.nii", "image.nii.gz"
# Between two passes; less than the command line keeps, for the bound of memory. The result is the
# same.
KEPT_BYTES = 96 * 2**20
_GZIP = b"\x1f\x8b"


def prepare(memory_bytes: int) -> None:
    """Limit how much more memory this process may allocate."""
    logging.disable()  # libraries log nothing that the answer does not say
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal goes to all: others decide
    voxels.KEPT_BYTES = KEPT_BYTES
    _import_readers()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the image
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + memory_bytes, hard))


def answer(file: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of an image, or why it is refused, as ``problem``.

    Parameters
    ----------
    file : str
        Path of an open file.
    task : dict
        ``max_voxels``, ``coarse_points`` and ``network_points``.
    """
    with TemporaryDirectory(prefix="voxcast-image-") as folder, open(file, "rb") as stream:  # noqa: PTH123
        path = Path(folder, COMPRESSED if stream.read(2) == _GZIP else PLAIN)
        path.symlink_to(file)
        try:
            return _read(path, task)
        except VoxcastError as error:
            text = error.problem if error.then is None else f"{error.problem}; {error.then}"
            return {"problem": " ".join(text.replace(str(path), "the image").split())}
        except MemoryError:
            return {"problem": "needs more memory than this service has for an image"}
        except Exception as error:  # any exception that damage can cause
            kind = type(error).__name__
            problem = f"cannot be read ({kind}); convert the file again"
            return {"problem": problem, "unforeseen": kind}


def _import_readers() -> None:
    """Import all modules that reading needs, so that they count as idle memory."""
    import numpy as np
    import scipy.ndimage
    import scipy.sparse.csgraph  # noqa: F401

    # OpenBLAS allocates its buffer in the first product, and retries for ever if it cannot.
    square = np.ones((256, 256))
    np.linalg.inv(square @ square + np.eye(256))


def _data_bytes() -> int:
    """Return the memory that this process has allocated."""
    return int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) * 1024


def _read(path: Path, task: dict[str, Any]) -> dict[str, Any]:
    max_voxels = int(task["max_voxels"])
    volume = Volume.open(path)
    grids = Grids(int(task["coarse_points"]), int(task["network_points"]))
    summary = summarise(volume, grids, max_voxels)
    row = {**header_row(volume.header), **summary.characteristics}
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ImageError(f"its {name} is {value}", path, "look at its header and voxels")
    if summary.network_volume is not None:
        row[VOLUME] = base64.b64encode(network_to_bytes(summary.network_volume)).decode()
    header, note = volume.header, volume.itk_refusal
    return {
        "row": row,
        "notes": [f"applications built on ITK refuse it: {note}"] if note else [],
        "image": {
            "shape": header.shape, "spacing_mm": header.spacing_mm, "orientation": header.axcodes,
            "dtype": header.dtype, "bytes": header.file_size_bytes,
        },
        "slices": [view.as_json() for view in middle_slices(volume, max_voxels)],
    }  # fmt: skip
