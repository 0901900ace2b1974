"""All measured runs in some folders, recorded in parts or as folders of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.records import MEASURED
from voxcast.runs.store import open_history
from voxcast.runs.table import ADDED, DTYPES, PHASE_DTYPES, frame_of, in_schema

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd

    Source = tuple[pd.DataFrame, pd.DataFrame]


def runs_on_record(
    folders: Iterable[Path], *, named: bool = True
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the measured runs in ``folders`` and their phases; imported runs are left out.

    Parameters
    ----------
    folders : iterable of Path
        See `voxcast.runs.store.open_history`.
    named : bool
        Whether the user named these folders. A named folder that is missing or has no runs is an
        error; otherwise it is skipped.

    Returns
    -------
    runs, phases : DataFrame
        Columns as in `voxcast.runs.table`. A cell key that occurs in several folders is
        taken from the first.

    Raises
    ------
    TableError
        If nothing can be read in a folder, or a named folder is missing or has no runs.
    """
    sources: list[Source] = []
    for folder in folders:
        try:
            history = open_history(folder)
        except TableError:
            if named:
                raise
            continue
        sources.append((history.runs, history.phases))
    return united(sources)


def united(sources: Iterable[Source]) -> Source:
    """Combine measured runs and their phases; a repeated cell key is taken from the first source.

    Returns
    -------
    runs, phases : DataFrame
        Runs in the order they were started, phases by key and start.
    """
    import pandas as pd

    seen: set[str] = set()
    runs, phases = [frame_of([])], [frame_of([], PHASE_DTYPES)]
    for source_runs, source_phases in sources:
        if missing := [n for n in DTYPES if n not in ADDED and n not in source_runs.columns]:
            raise TableError(f"runs lack the column {missing[0]}", then="measure or import again")
        is_new = (source_runs["source"] == MEASURED) & ~source_runs["cell_key"].isin(seen)
        new = source_runs[is_new].drop_duplicates("cell_key")
        keys = set(new["cell_key"])
        seen |= keys
        runs.append(in_schema(new))
        phases.append(source_phases[source_phases["cell_key"].isin(keys)][list(PHASE_DTYPES)])
    return (
        pd.concat([frame for frame in runs if len(frame)] or runs[:1]).sort_values(
            ["started_at", "cell_key"], ignore_index=True
        ),
        pd.concat([frame for frame in phases if len(frame)] or phases[:1]).sort_values(
            ["cell_key", "start_s"], kind="stable", ignore_index=True
        ),
    )
