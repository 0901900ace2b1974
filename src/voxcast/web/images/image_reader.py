"""A process that reads images for the service, so that a hostile one can only end this process.

It is given open files through the socket that is its standard input, never names, and answers
each in one line of JSON. Memory and CPU time are limited by the kernel. A file has a name here
because readers of NIfTI tell by it what is compressed: two links in a folder lead to the
descriptor that an image always has.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import json
import logging
import math
import os
import resource
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.content_cache import ContentCache
from voxcast.errors import ImageError, VoxcastError
from voxcast.files import sha256_file
from voxcast.images import volume as voxels
from voxcast.images.network_volume import network_to_bytes
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast.serving.rows.image_row import header_row
from voxcast.serving.signature import VOLUME
from voxcast.web.images import slices
from voxcast.web.images.declared_size import check_declared_size
from voxcast.web.images.gzip_members import check_members
from voxcast.web.images.png import png

if TYPE_CHECKING:
    from collections.abc import Iterator


MODULE = "voxcast.web.images.image_reader"
IMAGE_FD = 100  # of the image that is read
PLAIN, COMPRESSED = "image.nii", "image.nii.gz"
MAX_TASK_BYTES = 2**16
TOO_SMALL = "too_small"  # of an answer: whether more memory may help
CACHE_BYTES = 2**28
# Between two passes; less than the command line keeps, for the bound of memory. The result is the
# same.
KEPT_BYTES = 96 * 2**20
_GZIP = b"\x1f\x8b"
_PR_SET_PDEATHSIG = 1


def main(argv: list[str] | None = None) -> int:
    """Answer until the socket is closed, or the process at its other end has ended."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cpu-s", type=int, required=True)
    args = parser.parse_args(argv)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != args.parent:
        return 1  # it was killed before prctl
    logging.disable()  # of what others write there is nothing that the answer does not say
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal goes to all: others decide
    voxels.KEPT_BYTES = KEPT_BYTES
    cache = ContentCache(args.folder / "cache", CACHE_BYTES)
    _import_readers()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the image
    idle_bytes = _data_bytes()
    with socket.socket(fileno=0) as connection:
        connection.sendall(b"{}\n")  # ready
        for task in _tasks(connection):
            _limit_memory(idle_bytes + int(task["memory_bytes"]))
            _limit_cpu(args.cpu_s)
            answer = _answer(task, args.folder, cache)
            os.close(IMAGE_FD)
            connection.sendall(json.dumps(answer, allow_nan=False).encode() + b"\n")
    return 0


def _import_readers() -> None:
    """Import what is imported when it is first needed, so that it counts as idle memory."""
    import numpy as np
    import scipy.ndimage
    import scipy.sparse.csgraph  # noqa: F401

    from voxcast.images import characteristics, lab_characteristics  # noqa: F401

    # OpenBLAS allocates its buffer in the first product, and retries for ever if it cannot.
    square = np.ones((256, 256))
    np.linalg.inv(square @ square + np.eye(256))


def _data_bytes() -> int:
    """Return the memory that this process has allocated."""
    return int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) * 1024


def _limit_memory(limit_bytes: int) -> None:
    """Limit what may be allocated for the image that comes."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def _limit_cpu(cpu_s: int) -> None:
    """Let the kernel end this process after some CPU time from now on."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used_s = math.ceil(usage.ru_utime + usage.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used_s + cpu_s, hard))


def _tasks(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield tasks; the file of each is `IMAGE_FD`."""
    while True:
        line, descriptors, _, _ = socket.recv_fds(connection, MAX_TASK_BYTES, 1)
        if not line:
            return
        while not line.endswith(b"\n"):
            line += connection.recv(MAX_TASK_BYTES)
        os.dup2(descriptors[0], IMAGE_FD, inheritable=False)
        os.close(descriptors[0])
        yield json.loads(line)


def _answer(task: dict[str, Any], folder: Path, cache: ContentCache) -> dict[str, Any]:
    """Return what is read of an image, or why it is refused."""
    path = folder / (COMPRESSED if os.pread(IMAGE_FD, 2, 0) == _GZIP else PLAIN)
    try:
        return _read(path, task, cache)
    except VoxcastError as error:
        text = error.problem if error.then is None else f"{error.problem}; {error.then}"
        return {"problem": " ".join(text.replace(str(path), "the image").split())}
    except MemoryError:
        problem = "needs more memory than this service has for an image"
        return {"problem": problem, TOO_SMALL: True}
    except Exception as error:  # whatever damage makes a reader raise: this is what it is here for
        kind = type(error).__name__
        return {"problem": f"cannot be read ({kind}); convert the file again", "unforeseen": kind}


def _read(path: Path, task: dict[str, Any], cache: ContentCache) -> dict[str, Any]:
    max_voxels = int(task["max_voxels"])
    if path.name == COMPRESSED:
        check_members(path)
    check_declared_size(path, max_voxels)
    volume = Volume.open(path)
    row = header_row(volume.header)
    if task["voxels"]:
        grids = Grids(int(task["coarse_points"]), int(task["network_points"]))
        summary = summarise(volume, grids, max_voxels, cache=cache)
        row |= summary.characteristics
        if summary.network_volume is not None:
            row[VOLUME] = base64.b64encode(network_to_bytes(summary.network_volume)).decode()
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ImageError(f"its {name} is {value}", path, "look at its header and voxels")
    views = _views(volume, max_voxels, cache) if task["slices"] else []
    header, note = volume.header, volume.itk_refusal
    return {
        "row": row,
        "notes": [f"applications built on ITK refuse it: {note}"] if note else [],
        "image": {
            "shape": header.shape, "spacing_mm": header.spacing_mm, "orientation": header.axcodes,
            "dtype": header.dtype, "bytes": header.file_size_bytes,
        },
        "slices": [
            {
                "plane": view.plane, "width": view.pixels.shape[1], "height": view.pixels.shape[0],
                "spacing_mm": view.spacing_mm, "png": base64.b64encode(png(view.pixels)).decode(),
            }
            for view in views
        ],
    }  # fmt: skip


def _views(volume: Volume, max_voxels: int, cache: ContentCache) -> list[slices.Slice]:
    content = {"file_sha256": sha256_file(volume.path)}
    arrays = cache.get("slices", slices.VERSION, content)
    if arrays is not None:
        with contextlib.suppress(KeyError, ValueError):  # written by something else
            return slices.from_arrays(arrays)
    views = slices.middle_slices(volume, max_voxels)
    cache.put("slices", slices.VERSION, content, slices.to_arrays(views))
    return views


if __name__ == "__main__":
    sys.exit(main())
