"""The volumes with the best and the worst predictions, as slices with their times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from voxcast.analysis.run_groups import by_configuration
from voxcast.errors import ImageError, one_line
from voxcast.images.slices import PLANES, middle_slices
from voxcast.images.volume import Volume
from voxcast.report.canvas import Drawing
from voxcast.report.wording import allocation_label, amount, percent

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

EACH = 2  # of best and of worst volumes


def scans(predictions: pd.DataFrame, catalogue: pd.DataFrame, project: Path) -> list[Drawing]:
    """Return the volumes with the smallest and the largest error of CPU time.

    Parameters
    ----------
    predictions : DataFrame
        One family's predictions on the test side.
    catalogue : DataFrame
        Paths of the volumes; others, such as those of recorded runs, are not drawn.
    project : Path
        Folder that relative paths refer to.
    """
    rows = catalogue.drop_duplicates("volume_id").set_index("volume_id")
    predictions = predictions[predictions["volume_id"].isin(rows.index)]
    ratios = predictions["cpu_s_median"] / predictions["cpu_s_actual"]
    ranked = (
        ratios.map(lambda ratio: abs(math.log(ratio)))
        .groupby(predictions["volume_id"])
        .mean()
        .sort_values(kind="stable")
        .index
    )
    each = min(EACH, (len(ranked) + 1) // 2)
    chosen = dict.fromkeys(ranked[: -each - 1 : -1], "Predicted worst")
    chosen = dict.fromkeys(ranked[:each], "Predicted best") | chosen
    drawn = []
    for volume_id, title in chosen.items():
        runs = predictions[predictions["volume_id"] == volume_id]
        name = f"subject {runs['subject'].iloc[0]}, volume {volume_id}"
        try:
            image = slices(Volume.open(project / str(rows.loc[volume_id, "path"])), name)
        except (ImageError, OSError) as error:
            image = Markup('<p class="missing">No slices: {}.</p>').format(one_line(error))
        drawn.append(Drawing(image, f"{title}: {name}. {_times(runs)}."))
    return drawn


def _times(predictions: pd.DataFrame) -> str:
    texts = []
    for group in by_configuration(predictions):
        for target, title in (("cpu_s", "CPU time"), ("runtime_s", "wall time")):
            actual, predicted = (
                float(group.runs[f"{target}_{k}"].median()) for k in ("actual", "median")
            )
            off = percent(abs(100 * (predicted / actual - 1)))
            texts.append(
                f"{allocation_label(group.configuration, group.scale)}: {title} predicted "
                f"{amount(target, predicted)}, measured {amount(target, actual)} "
                f"({off} too {'high' if predicted > actual else 'low'})"
            )
    return "; ".join(texts)


def slices(volume: Volume, name: str) -> Markup:
    """Return the three views of a volume side by side, at one scale in mm."""
    images = []
    for view in sorted(middle_slices(volume), key=lambda view: PLANES.index(view.plane)):
        height, width = np.multiply(view.pixels.shape, view.spacing_mm[::-1])
        images.append(
            Markup(
                '<img style="flex: {:.0f}; aspect-ratio: {:.0f} / {:.0f}" alt="{}" '
                'src="data:image/png;base64,{}">'
            ).format(width, width, height, f"{view.plane} slice of {name}", view.png())
        )
    return Markup('<div class="slices">{}</div>').format(Markup().join(images))
