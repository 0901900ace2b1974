"""A history named by its user: batches, single parts or folders of runs, read as one.

The verbs that take a history resolve it here, so that they accept the same folders and refuse
others in the same words.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import TableError, one_line
from voxcast.history.parts import RUNS, read_table, recorded_parts
from voxcast.history.run_folders import RECORD_FILE, load_records
from voxcast.history.run_series import PHASES, TRACES, phases_in, readable, traces_in
from voxcast.history.run_table import DTYPES, PHASE_DTYPES, TRACE_DTYPES, frame_of, in_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

ACCEPTED = (
    "give a folder of data/history, recorded or imported, one of its parts, "
    "or a folder of runs such as data/runs/cpu"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StoredHistory:
    """Runs, phases and traces below some folders.

    A part that cannot be read is left out with a warning that names it.

    Attributes
    ----------
    folders : tuple of Path
        As named by the user.
    parts : tuple of Path
        Parts of batches, and the tables of a stage.
    run_folders : tuple of Path
        Folders with one folder per run.
    """

    folders: tuple[Path, ...]
    parts: tuple[Path, ...]
    run_folders: tuple[Path, ...]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """All runs, without duplicate keys, in order of start.

        Raises
        ------
        TableError
            If nothing can be read.
        """
        frames = [*self._tables(RUNS, DTYPES), *self._of_folders(load_records, DTYPES)]
        if not frames:
            raise TableError("has no part that can be read", self.folders[0])
        runs = _united(frames, DTYPES).drop_duplicates("cell_key")
        return runs.sort_values(["started_at", "cell_key"], ignore_index=True)

    @cached_property
    def phases(self) -> pd.DataFrame:
        """The phases of the runs, by key and start."""
        frames = [*self._tables(PHASES, PHASE_DTYPES), *self._of_folders(phases_in, PHASE_DTYPES)]
        phases = _united(frames, PHASE_DTYPES)
        phases = phases.drop_duplicates(["cell_key", "phase", "start_s"])
        return phases.sort_values(["cell_key", "start_s"], kind="stable", ignore_index=True)

    @cached_property
    def traces(self) -> pd.DataFrame:
        """The thinned traces of the runs, by key and time."""
        frames = [*self._tables(TRACES, TRACE_DTYPES), *self._of_folders(traces_in, TRACE_DTYPES)]
        traces = readable(_united(frames, TRACE_DTYPES), self.folders[0])
        traces = traces.drop_duplicates(["cell_key", "t_s"])
        return traces.sort_values(["cell_key", "t_s"], kind="stable", ignore_index=True)

    def _tables(self, name: str, dtypes: Mapping[str, str]) -> list[pd.DataFrame]:
        frames = []
        for part in self.parts:
            try:
                frames.append(read_table(part / name, dtypes))
            except TableError as error:
                logger.warning("%s; left out", one_line(error))
        return frames

    def _of_folders(
        self, read: Callable[[Path], pd.DataFrame], dtypes: Mapping[str, str]
    ) -> list[pd.DataFrame]:
        frames = []
        for folder in self.run_folders:
            try:
                frames.append(in_schema(read(folder), dtypes))
            except (OSError, ValueError, KeyError) as error:
                logger.warning("%s: cannot be read (%s); left out", folder, one_line(error)[:120])
        return frames


def open_history(folders: Path | Sequence[Path]) -> StoredHistory:
    """Return the history in folders of any kind; nothing is read yet.

    Parameters
    ----------
    folders : Path or sequence of Path
        Batches of ``data/history``, parts of one, folders of runs, or folders of these.

    Raises
    ------
    TableError
        If a folder is missing, or is none of these.
    """
    named = (folders,) if isinstance(folders, Path) else tuple(folders)
    parts: dict[Path, None] = {}
    run_folders: dict[Path, None] = {}
    for folder in named:
        try:
            if not folder.exists():
                raise TableError("no such folder", folder, ACCEPTED)
            inside = [folder, *sorted(path for path in folder.glob("[!.]*/") if path.is_dir())]
            parts_here = [p for path in inside for p in _parts(path)]
            run_folders_here = [path for path in inside if _holds_runs(path)]
        except OSError as error:
            raise TableError(f"cannot be read: {error.strerror}", folder, ACCEPTED) from None
        if not parts_here and not run_folders_here:
            raise TableError("is not a history of runs", folder, ACCEPTED)
        parts |= dict.fromkeys(parts_here)
        run_folders |= dict.fromkeys(run_folders_here)
    return StoredHistory(named, tuple(parts), tuple(run_folders))


def _parts(folder: Path) -> list[Path]:
    return [folder] if (folder / RUNS).is_file() else recorded_parts(folder)


def _holds_runs(folder: Path) -> bool:
    return any(folder.glob(f"[!.]*/{RECORD_FILE}"))


def _united(frames: Iterable[pd.DataFrame], dtypes: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd

    filled = [in_schema(frame, dtypes) for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frame_of([], dtypes)
