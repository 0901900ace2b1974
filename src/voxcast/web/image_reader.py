"""Reading an image that a client sent, in a process of `voxcast.web.reader_pool`.

The kernel limits the memory of the process. Readers of NIfTI tell by its name whether a file is
compressed, so it is read by a link with such a name.

Three views of a volume: the slices through its centre, as a reader of images sees them.

Right is on the right, superior on top, anterior on top of the axial view and on the right of the
sagittal one. The voxels are read in blocks, and every k-th one of a slice is taken, so that memory
does not depend on the volume.
"""

from __future__ import annotations

import base64
import io
import logging
import math
import resource
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, VoxcastError
from voxcast.images import volume as voxels
from voxcast.images.network_volume import network_to_bytes
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Picked, Volume
from voxcast.serving.rows import header_row
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from voxcast.images.header import ImageHeader


PLANES = ("sagittal", "coronal", "axial")  # across the first, second, third axis of RAS
MAX_PIXELS = 256  # along an edge
WINDOW_PERCENTILES = (1.0, 99.5)  # from black to white: a few bright voxels darken nothing


@dataclass(frozen=True, eq=False)
class Slice:
    """One view.

    Attributes
    ----------
    plane : str
        One of `PLANES`.
    pixels : ndarray of uint8, shape (height, width)
        The first row is the upper one.
    spacing_mm : tuple of float
        Width and height of a pixel.
    """

    plane: str
    pixels: np.ndarray
    spacing_mm: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        """Return the view as JSON has it, with its picture as PNG in base64."""
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(self.pixels).save(file, "PNG")
        height, width = self.pixels.shape
        return {
            "plane": self.plane, "width": width, "height": height, "spacing_mm": self.spacing_mm,
            "png": base64.b64encode(file.getvalue()).decode(),
        }  # fmt: skip


def middle_slices(volume: Volume, max_voxels: int) -> list[Slice]:
    """Return the views of a volume.

    Raises
    ------
    ImageError
        See `voxcast.images.volume.Volume.blocks`.
    """
    shape = volume.header.shape
    stride = np.array([math.ceil(n / MAX_PIXELS) for n in shape])
    planes = []
    for axis, size in enumerate(shape):
        axes = [np.arange(0, n, step) for n, step in zip(shape, stride, strict=True)]
        axes[axis] = np.array([size // 2])
        planes.append(Picked(volume, axes))
    for first, block in volume.blocks(max_voxels):
        for plane in planes:
            plane.add(first, block)
    values = [volume.values(plane.voxels) for plane in planes]
    finite = np.concatenate([part[np.isfinite(part)] for part in values])
    low, high = np.percentile(finite, WINDOW_PERCENTILES) if finite.size else (0.0, 1.0)
    return [
        _slice(part, axis, volume.header, stride, (low, high)) for axis, part in enumerate(values)
    ]


def _slice(
    values: np.ndarray,
    axis: int,
    header: ImageHeader,
    stride: np.ndarray,
    window: tuple[float, float],
) -> Slice:
    """Return the view of a plane across an axis of the file."""
    from nibabel.orientations import apply_orientation, axcodes2ornt

    turn = axcodes2ornt(tuple(header.axcodes))
    low, high = window
    with np.errstate(over="ignore", invalid="ignore"):
        grey = np.nan_to_num(255 * np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0))
    turned = apply_orientation(grey.round().astype(np.uint8), turn)
    spacing_mm = np.empty(3)
    spacing_mm[turn[:, 0].astype(int)] = np.array(header.spacing_mm) * stride
    across = int(turn[axis, 0])
    right, up = (other for other in range(3) if other != across)
    return Slice(
        PLANES[across],
        np.ascontiguousarray(np.squeeze(turned, across).T[::-1]),
        (float(spacing_mm[right]), float(spacing_mm[up])),
    )


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
