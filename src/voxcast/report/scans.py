"""The volumes with the best and the worst predictions, as slices with their times."""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from voxcast.analysis.run_groups import by_configuration
from voxcast.errors import ImageError, one_line
from voxcast.images.volume import CoarseVolume, Volume
from voxcast.report.canvas import Drawing
from voxcast.report.wording import allocation_label, amount, percent

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

EACH = 2  # of best and of worst volumes
_POINTS = 192
PLANES = ((0, 1, 2), (1, 0, 2), (2, 0, 1))  # axis that is cut, horizontal and vertical axis


def scans(predictions: pd.DataFrame, catalogue: pd.DataFrame, project: Path) -> list[Drawing]:
    """Return the volumes with the smallest and the largest error of CPU time.

    Parameters
    ----------
    predictions : DataFrame
        One family's predictions on the test side.
    catalogue : DataFrame
        Paths of the volumes.
    project : Path
        Folder that relative paths refer to.
    """
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
    rows = catalogue.drop_duplicates("volume_id").set_index("volume_id")
    drawn = []
    for volume_id, title in chosen.items():
        runs = predictions[predictions["volume_id"] == volume_id]
        name = f"subject {runs['subject'].iloc[0]}, volume {volume_id}"
        try:
            if volume_id not in rows.index:
                raise ImageError("no longer in the catalogue", volume_id)
            coarse = Volume.open(project / str(rows.loc[volume_id, "path"])).coarse(_POINTS)
            alt = f"Sagittal, coronal and axial slice of {name}"
            image = Markup('<img src="{}" alt="{}">').format(slices(coarse), alt)
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


def slices(coarse: CoarseVolume) -> str:
    """Return sagittal, coronal and axial slices through the middle of the head, as a data URI.

    Slices are in canonical orientation: the right side of an image is the subject's right or
    front.
    """
    from matplotlib.figure import Figure
    from nibabel.orientations import apply_orientation, axcodes2ornt

    orientation = axcodes2ornt(tuple(coarse.axcodes))
    data = apply_orientation(coarse.data, orientation)
    steps = np.zeros(3)
    steps[orientation[:, 0].astype(int)] = np.multiply(coarse.spacing_mm, coarse.stride)
    head = np.argwhere(data > data.mean())
    middle = np.median(head, axis=0).astype(int) if len(head) else np.array(data.shape) // 2
    dark, bright = np.percentile(data, (1, 99.7))
    size_mm = np.array(data.shape) * steps
    widths = [size_mm[across] for _, across, _ in PLANES]
    figure = Figure(figsize=(8.0, 8.0 / sum(widths) * max(size_mm)), facecolor="black")
    grid = figure.subplots(1, 3, gridspec_kw={"width_ratios": widths, "wspace": 0.01})
    figure.subplots_adjust(0, 0, 1, 1)
    for axes, (cut, across, up) in zip(grid, PLANES, strict=True):
        axes.imshow(
            np.take(data, middle[cut], axis=cut).T, cmap="gray", vmin=dark,
            vmax=max(bright, dark + 1e-6), origin="lower", aspect="equal",
            extent=(0, size_mm[across], 0, size_mm[up]), interpolation="bilinear",
        )  # fmt: skip
        axes.set_axis_off()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="jpg", dpi=90, facecolor="black", pil_kwargs={"quality": 82})
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
