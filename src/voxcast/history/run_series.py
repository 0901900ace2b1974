"""Phases and traces of folders of runs, which parts keep in tables of their own."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from voxcast.files import read_json
from voxcast.history.parts import PHASES, TRACES
from voxcast.history.run_folders import RECORD_FILE, SAMPLES_FILE
from voxcast.history.run_table import PHASE_DTYPES, TRACE_DTYPES, frame_of
from voxcast.history.thinning import thinned
from voxcast.records import Phase

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

logger = logging.getLogger(__name__)


def phases_in(folder: Path) -> pd.DataFrame:
    """Read the phases of all runs in ``folder``, from its table or from the records of its runs.

    Returns
    -------
    DataFrame
        Columns of `PHASE_DTYPES`. A broken record is skipped with a warning.
    """
    import pandas as pd

    if (folder / PHASES).is_file():
        return pd.read_parquet(folder / PHASES)
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob(f"[!.]*/{RECORD_FILE}")):
        try:
            rows += _rows(path.parent.name, read_json(path))
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning("%s: broken record (%r); left out", path, error)
    return frame_of(rows, PHASE_DTYPES)


def traces_in(folder: Path) -> pd.DataFrame:
    """Read the traces of all runs in ``folder``, thinned as in a part.

    Returns
    -------
    DataFrame
        Columns of `TRACE_DTYPES`. Runs without a readable trace have no rows.
    """
    import pandas as pd

    if (folder / TRACES).is_file():
        return pd.read_parquet(folder / TRACES)
    frames = [frame_of([], TRACE_DTYPES)]
    for path in sorted(folder.glob(f"[!.]*/{SAMPLES_FILE}")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            samples = thinned(pd.read_parquet(path), "rss_bytes")
            samples = samples.assign(cell_key=path.parent.name)[list(TRACE_DTYPES)]
            frames.append(samples.astype(TRACE_DTYPES))
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _rows(cell_key: str, record: dict[str, Any]) -> list[dict[str, Any]]:
    cell = record["cell"]
    rows = []
    for fields in record["profile"]["phases"]:
        phase = Phase(**fields)
        rows.append(
            {
                "cell_key": cell_key,
                "app": str(cell["app"]),
                "volume_id": str(cell["volume_id"]),
                "cpus": int(cell["configuration"]["cpus"]),
                "phase": phase.name,
                "start_s": float(phase.start_s),
                "end_s": float(phase.end_s),
                "duration_s": float(phase.duration_s),
                "cpu_s": phase.cpu_s,
                "peak_rss_bytes": phase.peak_rss_bytes,
            }
        )
    return rows
