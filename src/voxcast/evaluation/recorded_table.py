"""Recorded histories as one training table, with all applications and scales."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from voxcast.errors import TableError
from voxcast.features.phase_labels import COLUMN as PHASES
from voxcast.features.phase_labels import phase_texts
from voxcast.features.table import DOWN, FULL
from voxcast.features.training_table import build_table, with_speed_deviations
from voxcast.images.characteristics import CHARACTERISTICS, current_rows, versions_of
from voxcast.images.network_volume import SMALL_VOLUMES, read_stacked
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.models.openings import enter_opening
from voxcast.runs.store import batch_names, load_history, load_phases, reserved_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import pandas as pd

# The characteristics that are features, by application.
Declared: TypeAlias = "Mapping[str, Sequence[str] | None]"
ALL: Declared = {}
Drivers: TypeAlias = "Mapping[str, Mapping[str, Sequence[str]]]"
NO_DRIVERS: Drivers = {}
# Columns of a run beside the features.
CONTEXT_COLUMNS = ("parameters_json",)


def recorded_table(
    batches: Sequence[Path | str],
    is_sealed: Callable[[str], bool],
    declared: Declared = ALL,
    drivers: Drivers = NO_DRIVERS,
) -> pd.DataFrame:
    """Return the runs of recorded histories with their features; no image is needed.

    Studies choose, so they see no run that others are judged on: neither batches that are
    reserved for judging, nor the subjects of the test table. Runs without an image are in no test
    table and are all returned.

    Parameters
    ----------
    batches : sequence of Path
        Folders of ``data/history``, each with the characteristics of its volumes.
    is_sealed : callable
        Whether a subject is on the test side.
    declared : mapping
        See `table_on_images`.
    drivers : mapping
        By application what drives each of its phases, for the family that sums them; see
        `voxcast.features.phase_labels`. Other applications have no labels by phase.

    Returns
    -------
    DataFrame
        As of `voxcast.features.training_table.build_table`, with `CONTEXT_COLUMNS`, ``batch``,
        the name of the folder, and the column of `voxcast.features.table`.

    Raises
    ------
    TableError
        If a batch is reserved for judging, or does not include the characteristics of its
        volumes, as imports do not.
    """
    import pandas as pd

    tables = []
    for batch in map(Path, batches):
        if batch.name in reserved_names(batch.parent):
            fix = "judge on it by `opened_table`, which enters it in the book of openings"
            raise TableError("is reserved for judging", batch, fix)
        tables.append(_table_of_batch(batch, declared, drivers))
    table = _with_speed_deviation(pd.concat(tables, ignore_index=True), list(map(Path, batches)))
    sealed = (table["volume_id"] != "") & table["subject"].map(is_sealed).astype(bool)
    return table[~sealed].reset_index(drop=True)


def opened_table(
    batch: Path, book: Path, by: str, commit: str, declared: Declared = ALL
) -> pd.DataFrame:
    """Return the runs of a batch that is judged on, after entering that in the book.

    Parameters
    ----------
    book, by, commit
        See `voxcast.models.openings.enter_opening`.
    declared : mapping
        See `table_on_images`.
    """
    table = _table_of_batch(batch, declared, NO_DRIVERS)
    enter_opening(book, batch.name, table, by, commit)
    history = batch.parent
    beside = [history / name for name in batch_names(history)]
    # A batch without repeats does not tell how runs follow the speed of the machine.
    return _with_speed_deviation(
        table, [batch, *(b for b in beside if b.name not in reserved_names(history))]
    )


def _table_of_batch(batch: Path, declared: Declared, drivers: Drivers) -> pd.DataFrame:
    import pandas as pd

    path = batch / RECORDED_IMAGES
    if not path.is_file():
        raise TableError(
            "no such file", path, "take a campaign recorded by voxcast: it has its images"
        )
    runs = load_history([batch]).assign(batch=batch.name)
    images = current_rows(pd.read_parquet(path), versions_of({}))
    table = table_on_images(runs, images, declared)[0]
    phases = load_phases([batch])
    texts: dict[str, str] = {}
    for app, of_this_app in table.groupby("app", sort=True):
        cpu_s = dict(zip(of_this_app["cell_key"], of_this_app["cpu_s"], strict=True))
        texts |= phase_texts(phases, cpu_s, drivers.get(str(app), {}))
    return table.assign(**{PHASES: table["cell_key"].map(texts).fillna("")}) if texts else table


def _with_speed_deviation(table: pd.DataFrame, batches: Sequence[Path]) -> pd.DataFrame:
    return with_speed_deviations(table, load_history(batches), load_phases(batches))


def table_on_images(
    runs: pd.DataFrame, images: pd.DataFrame, declared: Declared = ALL
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Join the runs of any application and scale with their images and `CONTEXT_COLUMNS`.

    Parameters
    ----------
    images : DataFrame
        Headers and characteristics of the volumes.
    declared : mapping
        By application the characteristics that are its features; all for any other.

    Returns
    -------
    table : DataFrame
        As of `voxcast.features.training_table.build_table`.
    left_out : dict of str to int
        Number of runs left out, by reason.
    """
    import pandas as pd

    tables: list[pd.DataFrame] = []
    left_out: Counter[str] = Counter()
    for app, of_this_app in runs.groupby("app", sort=True):
        rows, left_out_of_app = build_table(
            of_this_app,
            images.assign(problem=None),
            images[["volume_id", *CHARACTERISTICS]],
            scales=(FULL, DOWN),
            without_image=True,
            declared=declared.get(str(app)),
        )
        tables.append(rows)
        left_out.update(left_out_of_app)
    # In the order of the keys, across applications.
    table = pd.concat([rows for rows in tables if len(rows)] or tables[:1])
    if len(table):
        table = table.sort_values("cell_key", ignore_index=True)
    if table.empty:
        return table, left_out
    context = runs.set_index("cell_key").loc[table["cell_key"], list(CONTEXT_COLUMNS)]
    return pd.concat([table, context.reset_index(drop=True)], axis=1), left_out


def seconds_in_phase(batches: Sequence[Path | str], phase: str) -> pd.Series:
    """Return the total wall seconds that each run spent in a phase, by cell key."""
    phases = load_phases([Path(batch) for batch in batches])
    phases = phases[phases["phase"] == phase]
    return (phases["end_s"] - phases["start_s"]).groupby(phases["cell_key"]).sum()


def of_app(table: pd.DataFrame, app: str, scale: str | None = None) -> pd.DataFrame:
    """Return the runs of an application, at one scale or all, without empty columns."""
    runs = table[table["app"] == app]
    if scale is not None:
        runs = runs[runs["scale"] == scale]
    return runs.dropna(axis=1, how="all").reset_index(drop=True)


def network_volumes(table: pd.DataFrame, batches: Sequence[Path]) -> np.ndarray:
    """Return the small volume of each run as recorded in several batches, shape (n_runs,).

    The volume of a run without an image is unknown, all zeros.

    Raises
    ------
    TableError
        If a batch has no small volumes on record, or they cannot be read.
    """
    import numpy as np

    by_id: dict[str, np.ndarray] = {}
    for batch in batches:
        ids, volumes = read_stacked(batch / SMALL_VOLUMES, "restore it from the repository")
        by_id |= dict(zip(ids, volumes, strict=True))
    unknown = np.zeros_like(volumes[0])
    return np.array([by_id.get(name, unknown) for name in table["volume_id"]], volumes.dtype)
