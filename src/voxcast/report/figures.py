"""Figures of more than one plot: jobs of a cluster, and the slices of scans with their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from voxcast.analysis.run_groups import by_configuration
from voxcast.errors import ImageError, one_line
from voxcast.images.slices import PLANES, middle_slices
from voxcast.images.volume import Volume
from voxcast.laws.intervals import Interval
from voxcast.quantities import counted
from voxcast.report import plot
from voxcast.report.canvas import drawing
from voxcast.report.sections import Drawing
from voxcast.report.wording import TITLES, allocation_label, amount, percent

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

EACH = 2  # of best and of worst volumes


def requested_against_used(jobs: pd.DataFrame) -> Drawing:
    """Draw time and memory of the jobs that completed or were killed at a limit."""
    drawn = jobs[jobs["outcome"].isin(["completed", "timeout", "out_of_memory"])]
    of_memory = drawn
    if "all_memory" in drawn:  # that of the whole node is not a request
        of_memory = drawn[~drawn["all_memory"].astype(bool)]

    def draw(time: Any, memory: Any) -> None:
        plot.requested_against_used(drawn, time, requested="limit_s")
        names = {"requested": "mem_limit_bytes", "used": "peak_rss_bytes"}
        plot.requested_against_used(of_memory, memory, **names)

    alt = f"Requested against used time and memory of {counted(len(drawn), 'job')}"
    return drawing(draw, alt, size_in=(8.4, 4.0), columns=2)


def coverage_by_month(months: pd.DataFrame) -> Drawing:
    """Draw the share of jobs below their bounds, by month, application and target.

    ``months`` are of `voxcast.analysis.job_drift.monthly_coverage`.
    """
    rows = {
        f"{m['month']}, {m['app']}: {TITLES[m['target']]}": [
            Interval(100 * m["share_within"], 100 * m["low"], 100 * m["high"], m["subjects"])
        ]
        for m in months.to_dict("records")
    }
    stated = 100 * float(months["stated"].iloc[0])

    def draw(axes: Any) -> None:
        plot.intervals(rows, axes, line=stated).set_xlabel("subjects below the bound in %")
        axes.set_xlim(0, 104)

    texts = [f"{label} {percent(share.value)}" for label, (share,) in rows.items()]
    alt = f"Coverage of bounds of {percent(stated)}: {', '.join(texts)}"
    return drawing(draw, alt, size_in=(7.0, 1.1 + 0.32 * len(rows)))


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
    errors = np.abs(np.log(predictions["cpu_s_median"] / predictions["cpu_s_actual"]))
    ranked = errors.groupby(predictions["volume_id"]).mean().sort_values(kind="stable").index
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
        label = allocation_label(group.configuration, group.scale)
        for target in ("cpu_s", "runtime_s"):
            actual, predicted = group.runs[[f"{target}_actual", f"{target}_median"]].median()
            off = percent(abs(100 * (predicted / actual - 1)))
            texts.append(
                f"{label}: {TITLES[target]} predicted {amount(target, predicted)}, measured "
                f"{amount(target, actual)} ({off} too {'high' if predicted > actual else 'low'})"
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
