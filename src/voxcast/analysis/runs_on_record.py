"""All measured runs that lie in some folders, however they were put there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.parts import RUNS, load_history, load_phases
from voxcast.history.run_folders import PROFILES_FILE, RECORD_FILE, load_records
from voxcast.history.run_table import DTYPES, PHASE_DTYPES, frame_of
from voxcast.phases.logged import phase_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pandas as pd

    Source = tuple[pd.DataFrame, pd.DataFrame]

MEASURED = "measured"


def runs_on_record(
    folders: Iterable[Path], *, named: bool = True
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the measured runs in ``folders`` and their phases; imported ones are left out.

    Parameters
    ----------
    folders : iterable of Path
        Each is a batch of recorded parts, a folder of runs, or a folder of either, such as
        ``data/history`` and ``data/runs``.
    named : bool
        Whether somebody asked for these very folders: one that is missing or holds no runs is
        then an error, and otherwise passed over.

    Returns
    -------
    runs, phases : DataFrame
        Columns as in `voxcast.history.run_table`; a cell key once, as the first folder has it.

    Raises
    ------
    TableError
        If a table cannot be read, or a named folder is missing or holds no runs.
    """
    sources: list[Source] = []
    for folder in folders:
        if named and not folder.is_dir():
            raise TableError("no such folder", folder, "name a folder of runs or of a history")
        found = list(_sources(folder, deep=True))
        if named and not found:
            raise TableError("holds no runs", folder, "name a folder of runs or of a history")
        sources += found
    return united(sources)


def united(sources: Iterable[Source]) -> Source:
    """Put runs and their phases together: measured ones, a cell key once, from where it is first.

    Returns
    -------
    runs, phases : DataFrame
        Runs in the order they were started, phases by key and start.
    """
    import pandas as pd

    seen: set[str] = set()
    runs, phases = [frame_of([])], [frame_of([], PHASE_DTYPES)]
    for own, of_own in sources:
        if missing := [name for name in DTYPES if name not in own.columns]:
            raise TableError(f"runs lack the column {missing[0]}", then="measure or import again")
        new = own[(own["source"] == MEASURED) & ~own["cell_key"].isin(seen)]
        new = new.drop_duplicates("cell_key")
        keys = set(new["cell_key"])
        seen |= keys
        runs.append(new[list(DTYPES)].astype(DTYPES))
        phases.append(of_own[of_own["cell_key"].isin(keys)][list(PHASE_DTYPES)])
    return (
        pd.concat([one for one in runs if len(one)] or runs[:1]).sort_values(
            ["started_at", "cell_key"], ignore_index=True
        ),
        pd.concat([one for one in phases if len(one)] or phases[:1]).sort_values(
            ["cell_key", "start_s"], kind="stable", ignore_index=True
        ),
    )


def _sources(folder: Path, *, deep: bool) -> Iterator[Source]:
    """Read what a folder holds itself, or else, one floor down, what its folders hold."""
    try:
        if any(folder.glob(f"[!.]*/{RUNS}")):
            yield load_history([folder]), load_phases([folder])
        elif (folder / PROFILES_FILE).is_file() or any(folder.glob(f"[!.]*/{RECORD_FILE}")):
            yield _run_folders(folder)
        elif deep and folder.is_dir():
            for own in sorted(folder.glob("[!.]*/")):
                yield from _sources(own, deep=False)
    except (OSError, ValueError) as error:
        raise TableError(f"cannot be read ({error})", folder) from None


def _run_folders(folder: Path) -> Source:
    import pandas as pd

    # Recorded runs that stand in the place of measured ones are in the table alone.
    table = folder / PROFILES_FILE
    runs = [load_records(folder), *([pd.read_parquet(table)] if table.is_file() else [])]
    phases = phase_table([folder])
    return united((own, phases) for own in runs)
