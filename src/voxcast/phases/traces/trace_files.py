"""Communication traces of all kinds that voxcast reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.phases.traces.mpi_recorder import SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.phases.traces.events import EventTable

CHROME_PATTERNS = ("*.json", "*.json.gz")
THEN = "give a folder of `voxcast trace`, an .otf2 file, or traces of the PyTorch profiler"


def read_trace(path: Path) -> EventTable:
    """Read a trace, of whichever kind it is.

    Parameters
    ----------
    path : Path
        A folder written by ``voxcast trace``; the anchor file of an OTF2 archive, or the folder
        that holds it; a Chrome trace of the PyTorch profiler, or a folder with one for each rank.

    Raises
    ------
    RunError
        If it is none of these, or cannot be read.
    """
    if not path.exists():
        raise RunError("no such file or folder", path, THEN)
    if path.is_file():
        return _read_file(path)
    if any(path.glob(f"*{SUFFIX}")):
        from voxcast.phases.traces.mpi_trace import read_mpi_trace

        return read_mpi_trace(path)
    anchors = [*sorted(path.glob("*.otf2")), *sorted(path.glob("*/*.otf2"))]
    if len(anchors) > 1:
        names = ", ".join(str(anchor.relative_to(path)) for anchor in anchors)
        raise RunError(f"holds several archives: {names}", path, "name one")
    if anchors:
        return _read_file(anchors[0])
    chrome = sorted(file for pattern in CHROME_PATTERNS for file in path.glob(pattern))
    if chrome:
        from voxcast.phases.traces.chrome_reader import read_chrome_traces

        return read_chrome_traces(chrome)
    raise RunError("holds no trace", path, THEN)


def holds_trace(folder: Path) -> bool:
    """Return whether a folder is a trace of ``voxcast trace`` or an OTF2 archive."""
    return any(folder.glob(f"*{SUFFIX}")) or any(folder.glob("*.otf2"))


def _read_file(path: Path) -> EventTable:
    if path.suffix == SUFFIX:
        raise RunError("is the file of one rank", path, f"give its folder, {path.parent}")
    if path.suffix == ".otf2":
        from voxcast.phases.traces.otf2_reader import read_otf2

        return read_otf2(path)
    if any(path.match(pattern) for pattern in CHROME_PATTERNS):
        from voxcast.phases.traces.chrome_reader import read_chrome_traces

        return read_chrome_traces([path])
    raise RunError("is not a trace", path, THEN)
