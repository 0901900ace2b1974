"""The archive of a GPU campaign: packed on the other machine, collected into the runs here."""

from __future__ import annotations

import logging
import shutil
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from voxcast.errors import RunError, TableError
from voxcast.files import PARTIAL, atomic_path, read_json
from voxcast.history.run_folders import SAMPLES_FILE, SAMPLES_JSON, read_record

logger = logging.getLogger(__name__)

RUNS, SUMMARY_FILE = "runs", "campaign.json"
MAX_BYTES = 16_000_000


def pack(work: Path, archive: Path) -> None:
    """Write the finished runs of ``work`` into one archive.

    Raises
    ------
    RunError
        If it is too large to transfer.
    """
    with atomic_path(archive) as partial, tarfile.open(partial, "w:gz") as tar:
        if (work / SUMMARY_FILE).is_file():
            tar.add(work / SUMMARY_FILE, SUMMARY_FILE)
        for run in sorted((work / RUNS).iterdir()):
            if not run.name.startswith("."):
                tar.add(run, f"{RUNS}/{run.name}")
    if archive.stat().st_size > MAX_BYTES:
        raise RunError("is too large to transfer", archive, "copy the work folder instead")


def unpack(archive: Path, work: Path) -> None:
    """Put the runs of an earlier campaign into ``work``, to continue from there.

    Raises
    ------
    RunError
        If it is not an archive of a GPU campaign.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            _extract(tar, work)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise RunError(f"cannot be read ({error})", archive) from None


def collect(archive: Path, folder: Path) -> Counter[str]:
    """Put the runs of ``archive`` into ``folder``, one folder for each device.

    A run that already exists is kept. A run with a broken record is skipped with a warning.

    Parameters
    ----------
    archive : Path
        Written by `voxcast.campaigns.gpu.machine`.
    folder : Path
        Gets ``cpu/<key>`` and ``gpu/<key>``; created if missing.

    Returns
    -------
    Counter
        Runs added by device, and ``known`` and ``broken``.

    Raises
    ------
    RunError
        If the archive cannot be read.
    """
    counts: Counter[str] = Counter()
    folder.mkdir(parents=True, exist_ok=True)
    # On the same file system, so that a run can be moved in one step.
    with tempfile.TemporaryDirectory(dir=folder, prefix=PARTIAL) as scratch:
        unpack(archive, Path(scratch))
        for run in sorted((Path(scratch) / RUNS).glob("*")):
            try:
                _, cell, _ = read_record(run)
                if (run / SAMPLES_JSON).is_file():
                    _to_parquet(run / SAMPLES_JSON, run / SAMPLES_FILE)
            except (TableError, ValueError) as error:
                logger.warning("%s; it is left out", error)
                counts["broken"] += 1
                continue
            device = cell.configuration.device
            final = folder / device / run.name
            if final.exists():
                counts["known"] += 1
                continue
            final.parent.mkdir(exist_ok=True)
            shutil.move(run, final)
            counts[device] += 1
    return counts


def _to_parquet(samples: Path, path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = read_json(samples)
    kinds = {
        "t_s": pyarrow.float64(),
        "rss_bytes": pyarrow.int64(),
        "cpu_s": pyarrow.float64(),
        "gpu_bytes": pyarrow.int64(),
    }
    if not any(value is not None for value in columns.get("gpu_bytes", ())):
        del kinds["gpu_bytes"]  # a column only where it was measured
    arrays = {name: pyarrow.array(columns.get(name, []), kind) for name, kind in kinds.items()}
    with atomic_path(path) as partial:
        pyarrow.parquet.write_table(pyarrow.table(arrays), partial)
    samples.unlink()


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the plain files of ``tar`` below ``folder``; anything else in it is an error.

    Without the extraction filter of tarfile, which needs Python 3.11.4.
    """
    for member in tar:
        path = (folder / member.name).resolve()
        content = tar.extractfile(member) if member.isfile() else None
        if member.isdir():
            continue
        if content is None or not path.is_relative_to(folder.resolve()):
            raise tarfile.TarError(f"holds {member.name!r}, which is not a file of a run")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            shutil.copyfileobj(content, stream)
