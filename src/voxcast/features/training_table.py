"""The training table of a project: one row for each run on record that may train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.features.phase_labels import phase_texts
from voxcast.features.table import build_table
from voxcast.features.usual_speed import with_speed_deviations
from voxcast.images.characteristics import CHARACTERISTICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.features.training_runs import TrainingRuns
    from voxcast.records import App


def training_table(
    training: TrainingRuns, apps: Mapping[str, App]
) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    """Return the table of some applications, and by application what was left out, by reason.

    The table has neither rows nor columns if no run can be used; see
    `voxcast.features.table.build_table`.
    """
    import pandas as pd

    tables, left_out = [], {}
    # Each by itself: runs of one application are compared with each other only.
    for name, app in apps.items():
        # A laboratory's are features where they are declared by name.
        declared = tuple(CHARACTERISTICS) if app.characteristics is None else app.characteristics
        of_app = training.profiles[training.profiles["app"] == name]
        table, left_out[name] = build_table(
            of_app,
            training.volumes,
            training.characteristics,
            declared=declared,
            phase_texts=phase_texts(
                training.phases,
                dict(zip(of_app["cell_key"], of_app["cpu_s"], strict=True)),
                app.phase_drivers,
            ),
        )
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        return table, left_out
    return with_speed_deviations(table, training.profiles, training.phases), left_out
