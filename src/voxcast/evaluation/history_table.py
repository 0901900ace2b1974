"""Any history as one training table: runs with their images, imported ones with their labels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.evaluation.imported_table import imported_table, with_targets
from voxcast.evaluation.recorded_table import table_on_images
from voxcast.images.catalogue import ON_RECORD, read_on_record
from voxcast.images.characteristics import CHARACTERISTICS, current_rows, versions_of
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.records import MEASURED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.runs.store import StoredHistory

logger = logging.getLogger(__name__)


def history_table(
    history: StoredHistory, runs: pd.DataFrame, labels: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return the usable runs of a history with their features.

    A run whose volume is on record has the features of the volume. An imported run without one
    has its labels, see `voxcast.evaluation.imported_table`.

    Parameters
    ----------
    history : StoredHistory
        Where the images of the runs are looked for.
    runs : DataFrame
        The runs of it to use.
    labels : sequence of str, optional
        Labels of imported runs to use as features.

    Raises
    ------
    TableError
        If no run is usable, with the reasons.
    """
    import pandas as pd

    images = _images(history)
    has_image = runs["volume_id"].isin(set() if images is None else set(images["volume_id"]))
    is_import = runs["source"] != MEASURED
    with_images = [runs[~is_import], *_imports_with_targets(runs[is_import & has_image])]
    measured = pd.concat([table for table in with_images if len(table)] or with_images[:1])
    tables = []
    if len(measured):
        tables.append(_with_images(measured.reset_index(drop=True), images, history))
    if (is_import & ~has_image).any():
        imports = runs[is_import & ~has_image]
        tables.append(imported_table(imports, labels, history.folders[0]))
    if not tables:
        raise TableError("has no usable run", history.folders[0])
    return pd.concat(tables, ignore_index=True)


def _imports_with_targets(runs: pd.DataFrame) -> list[pd.DataFrame]:
    tables = []
    for app, of_app in runs.groupby("app"):
        try:
            tables.append(with_targets(of_app))
        except TableError as error:
            logger.warning("%s is not replayed: %s", app, error.problem)
    return tables


def _with_images(
    runs: pd.DataFrame, images: pd.DataFrame | None, history: StoredHistory
) -> pd.DataFrame:
    import pandas as pd

    if images is None and (runs["volume_id"] != "").any():
        raise TableError(
            f"has runs on images, but neither {RECORDED_IMAGES} beside its parts nor the "
            f"{ON_RECORD} of its project",
            history.folders[0],
            "give the whole folder of the history, or run `dvc repro catalogue` in the project",
        )
    if images is None:
        images = pd.DataFrame(columns=["volume_id", *CHARACTERISTICS])
    table, left_out = table_on_images(runs, images)
    causes = ", ".join(f"{count} {cause}" for cause, count in left_out.items())
    if table.empty:
        raise TableError(f"has no usable run ({causes})", history.folders[0])
    if causes:
        logger.info("runs left out: %s", causes)
    return table


def _images(history: StoredHistory) -> pd.DataFrame | None:
    """Return header and characteristics of the volumes of a history, if they are recorded.

    They are beside the parts of a batch; of runs and tables of a device in the catalogue of their
    project, ``data/catalogue`` beside ``data/runs``.
    """
    import pandas as pd

    batches = dict.fromkeys(part.parent for part in history.parts)
    tables = [
        current_rows(pd.read_parquet(batch / RECORDED_IMAGES), versions_of({}))
        for batch in batches
        if (batch / RECORDED_IMAGES).is_file()
    ]
    of_devices = (*history.run_folders, *history.parts)  # a folder of runs, or its tables
    projects = dict.fromkeys(folder.resolve().parent.parent for folder in of_devices)
    tables += [
        read_on_record(data / "catalogue" / ON_RECORD)
        for data in projects
        if (data / "catalogue" / ON_RECORD).is_file()
    ]
    if not tables:
        return None
    return pd.concat(tables, ignore_index=True).drop_duplicates("volume_id")
