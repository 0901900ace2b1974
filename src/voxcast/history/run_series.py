"""Phases and traces of runs, which parts keep in tables of their own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import one_line
from voxcast.files import read_json
from voxcast.history.run_folders import RECORD_FILE, SAMPLES_FILE
from voxcast.history.run_table import PHASE_DTYPES, TRACE_DTYPES, frame_of
from voxcast.history.thinning import thinned
from voxcast.records import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

PHASES, TRACES = "phases.parquet", "traces.parquet"

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
    return phases_of(path.parent for path in sorted(folder.glob(f"[!.]*/{RECORD_FILE}")))


def phases_of(runs: Iterable[Path]) -> pd.DataFrame:
    """Read the phases of runs from the records in their folders; see `phases_in`."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        try:
            rows += _rows(run.name, read_json(run / RECORD_FILE))
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning("%s: broken record (%r); left out", run / RECORD_FILE, error)
    return frame_of(rows, PHASE_DTYPES)


def traces_in(folder: Path) -> pd.DataFrame:
    """Read the traces of all runs in ``folder``, from its table or from the samples of its runs.

    Returns
    -------
    DataFrame
        Columns of `TRACE_DTYPES`, thinned. Runs without a readable trace have no rows.
    """
    import pandas as pd

    if (folder / TRACES).is_file():
        return pd.read_parquet(folder / TRACES)
    return traces_of(path.parent for path in sorted(folder.glob(f"[!.]*/{SAMPLES_FILE}")))


def traces_of(runs: Iterable[Path]) -> pd.DataFrame:
    """Read the traces of runs from the samples in their folders; see `traces_in`."""
    import pandas as pd

    frames = [frame_of([], TRACE_DTYPES)]
    for run in runs:
        path = run / SAMPLES_FILE
        try:
            samples = readable(pd.read_parquet(path).assign(cell_key=run.name), path)
            frames.append(thinned(samples, "rss_bytes")[list(TRACE_DTYPES)].astype(TRACE_DTYPES))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError) as error:
            logger.warning("%s: no trace (%s); left out", path, one_line(error)[:120])
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def readable(samples: pd.DataFrame, where: object) -> pd.DataFrame:
    """Return the samples that have a time and a memory; a warning counts the others."""
    values = samples[["t_s", "rss_bytes"]].to_numpy(dtype=float)
    is_readable: NDArray[np.bool_] = np.isfinite(values).all(axis=1)
    if n_unreadable := int((~is_readable).sum()):
        logger.warning(
            "%s: %d of %d samples have no time or memory; left out",
            where, n_unreadable, len(samples),
        )  # fmt: skip
    return samples.loc[is_readable]


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
