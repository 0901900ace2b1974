"""The part of the page about one application: its models, their errors, bounds and volumes.

Slices of the volumes with the best and the worst predictions, as inline images.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxcast.analysis.model_comparison import HEADER_ONLY
from voxcast.analysis.run_groups import by_configuration
from voxcast.errors import ImageError, one_line
from voxcast.images.volume import CoarseVolume, Volume
from voxcast.quantities import counted
from voxcast.report import figures, tables
from voxcast.report.cautions import app_cautions
from voxcast.report.coverage import coverage_table, reliability_panels
from voxcast.report.tables import Table
from voxcast.report.wording import allocation_label, amount, percent, percent_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.analysis.noise import RepeatNoise
    from voxcast.report.figures import Drawing
    from voxcast.report.narrative import AppNarrative, Narrative


@dataclass(frozen=True)
class AppSection:
    """Tables, figures and sentences of an application, as the template shows them.

    Attributes
    ----------
    number : int
        From 1; part of the ids of the section.
    narrative : AppNarrative
        Models and sentences.
    error_table, coverage_table, importance_table : Table or None
        None without a test side, or where no feature is important.
    """

    number: int
    narrative: AppNarrative
    cautions: list[str]
    error_panels: list[Drawing]
    model_tables: list[Table]
    scatters: list[Drawing]
    error_table: Table | None
    importance_table: Table | None
    dependence_panels: list[Drawing]
    coverage_panels: list[Drawing]
    reliability_panels: list[Drawing]
    bounds_table: Table
    coverage_table: Table | None
    pictures: list[Picture]


def app_sections(
    narrative: Narrative, noise: list[RepeatNoise], project: Path
) -> list[AppSection]:
    """Return one section for each application that was learned.

    Parameters
    ----------
    narrative : Narrative
        Results of the pass.
    noise : list of RepeatNoise
        By application, device, CPUs and scale.
    project : Path
        Folder that the paths of the catalogue refer to.
    """
    return [
        _section(number, app, narrative, noise, project)
        for number, app in enumerate(narrative.apps, 1)
    ]


def overview(apps: Sequence[AppNarrative]) -> Table:
    """List the applications with champion, errors and training runs."""
    rows = []
    for app in apps:
        models, training = app.models, app.training
        tested = models.tested.get(models.winner)
        rows.append(
            [
                app.app,
                f"{models.champion or 'none'}, version {models.version or 'none'}",
                percent(models.cross_validated[models.winner]["cpu_s"]),
                percent_interval(tested["cpu_s"]) if tested else "not tested",
                percent(app.floor_percent.get("cpu_s", math.nan)),
                "calibrated" if models.calibrated else "not calibrated",
                f"{training.runs} of {counted(training.subjects, 'subject')}",
            ]
        )
    head = ["Application", "Champion", "Error by cross-validation", "Error on unseen subjects",
            "Noise floor", "Upper bounds", "Runs on record"]  # fmt: skip
    caption = (
        "Applications. Errors are mean absolute percentage errors of CPU time of the best model, "
        "with 95 % interval over subjects"
    )
    return Table(caption, head, rows)


def _section(
    number: int, app: AppNarrative, narrative: Narrative, noise: list[RepeatNoise], project: Path
) -> AppSection:
    inputs, models, name = narrative.inputs, app.models, app.app
    metrics = {
        family: inputs.metrics[name][family]
        for family in [*models.cross_validated, HEADER_ONLY]
        if family in inputs.metrics[name]
    }
    predictions = inputs.predictions_of(name, models.winner)
    model_tables = [tables.cross_validated(models, inputs.leaderboard_of(name), app.floor_percent)]
    if models.tested:
        model_tables.append(tables.tested(models, app.floor_percent))
    dependence = inputs.dependence[inputs.dependence["app"] == name]
    shuffled = inputs.shuffled[inputs.shuffled["app"] == name]
    has_tests = len(predictions) > 0
    return AppSection(
        number=number,
        narrative=app,
        cautions=app_cautions(app, narrative),
        error_panels=figures.error_panels(models, app.floor_percent, name),
        model_tables=model_tables,
        scatters=figures.scatter_panels(predictions),
        error_table=tables.errors(predictions, noise) if has_tests else None,
        importance_table=tables.importance(shuffled),
        dependence_panels=figures.dependence_panels(dependence),
        coverage_panels=(
            figures.coverage_panels(metrics, models.upper_quantile, name) if metrics else []
        ),
        reliability_panels=(
            reliability_panels(inputs.distribution[name], name)
            if name in inputs.distribution
            else []
        ),
        bounds_table=tables.bounds(
            metrics.get(models.winner, {}),
            inputs.receipt_of(name)["challenger"]["risk_at_upper_quantile"],
        ),
        coverage_table=coverage_table(predictions) if has_tests else None,
        pictures=pictures(predictions, inputs.catalogue, project),
    )


_POINTS = 192


@dataclass(frozen=True)
class Picture:
    """Three slices of a volume with predicted and measured times.

    ``image`` is a data URI, or None; ``problem`` is then the reason.
    """

    title: str
    volume: str
    image: str | None
    problem: str | None
    times: list[str]


def pictures(
    predictions: pd.DataFrame, catalogue: pd.DataFrame, project: Path, each: int = 2
) -> list[Picture]:
    """Return the volumes with the smallest and the largest error of CPU time.

    Parameters
    ----------
    predictions : DataFrame
        One family's predictions on the test side.
    catalogue : DataFrame
        Paths of the volumes.
    project : Path
        Folder that relative paths refer to.
    each : int
        Number of best and of worst volumes; fewer if there are few volumes.
    """
    if predictions.empty:
        return []
    logs = (predictions["cpu_s_median"] / predictions["cpu_s_actual"]).map(math.log).abs()
    ranked = logs.groupby(predictions["volume_id"]).mean().sort_values(kind="stable").index
    if len(ranked) == 1:
        chosen = [("The only volume", ranked[0])]
    else:
        each = min(each, len(ranked) // 2)
        best = [("Predicted best", v) for v in ranked[:each]]
        chosen = best + [("Predicted worst", v) for v in ranked[: -each - 1 : -1]]
    rows = catalogue.drop_duplicates("volume_id").set_index("volume_id")
    pictured = []
    for title, volume_id in chosen:
        image, problem, grid = None, None, ""
        if volume_id in rows.index:
            row = rows.loc[volume_id]
            shape = " × ".join(str(int(row[f"shape_{axis}"])) for axis in "ijk")
            spacing = " × ".join(f"{row[f'spacing_{axis}_mm']:.2f}" for axis in "ijk")
            grid = f", {shape} voxels of {spacing} mm"
            try:
                image = render(Volume.open(project / str(row["path"])).coarse(_POINTS))
            except (ImageError, OSError) as error:
                problem = f"No slices: {one_line(error)}"
        else:
            problem = "No slices: the volume is no longer in the catalogue"
        volume_predictions = predictions[predictions["volume_id"] == volume_id]
        name = f"subject {volume_predictions['subject'].iloc[0]}, volume {volume_id}{grid}"
        pictured.append(Picture(title, name, image, problem, _times(volume_predictions)))
    return pictured


def _times(predictions: pd.DataFrame) -> list[str]:
    lines = []
    for group in by_configuration(predictions):
        runs, texts = group.runs, []
        for target, title in (("cpu_s", "CPU time"), ("runtime_s", "wall time")):
            actual, predicted = (
                float(runs[f"{target}_{k}"].median()) for k in ("actual", "median")
            )
            deviation = 100 * (predicted - actual) / actual
            texts.append(
                f"{title} predicted {amount(target, predicted)}, "
                f"measured {amount(target, actual)} "
                f"({percent(abs(deviation))} too {'high' if deviation > 0 else 'low'})"
            )
        allocation = allocation_label(group.configuration, group.scale)
        lines.append(f"{group.app}, {allocation}: {'; '.join(texts)}")
    return lines


def render(coarse: CoarseVolume) -> str:
    """Return sagittal, coronal and axial slices through the middle of the head, as a data URI.

    Slices are in canonical orientation: the right side of an image is the subject's right or
    front.
    """
    from matplotlib.figure import Figure
    from nibabel.orientations import apply_orientation, axcodes2ornt

    orientation = axcodes2ornt(tuple(coarse.axcodes))
    data = apply_orientation(coarse.data, orientation)
    steps = np.zeros(3)
    native_steps = [mm * k for mm, k in zip(coarse.spacing_mm, coarse.stride, strict=True)]
    steps[orientation[:, 0].astype(int)] = native_steps
    head = np.argwhere(data > data.mean())
    middle = np.median(head, axis=0).astype(int) if len(head) else np.array(data.shape) // 2
    dark, bright = np.percentile(data, (1, 99.7))
    size_mm = np.array(data.shape) * steps
    planes = [
        (0, 1, 2),
        (1, 0, 2),
        (2, 0, 1),
    ]  # the axis that is cut, the horizontal and the vertical axis
    widths, tallest = [size_mm[across] for _, across, _ in planes], max(size_mm)
    scale = 8.0 / sum(widths)
    figure = Figure(figsize=(8.0, scale * tallest), facecolor="black")
    grid = figure.add_gridspec(1, 3, width_ratios=widths, wspace=0.01)
    figure.subplots_adjust(0, 0, 1, 1)
    for n, (cut, across, up) in enumerate(planes):
        axes = figure.add_subplot(grid[0, n])
        axes.imshow(
            np.take(data, middle[cut], axis=cut).T, cmap="gray", vmin=dark,
            vmax=max(bright, dark + 1e-6), origin="lower", aspect="equal",
            extent=(0, size_mm[across], 0, size_mm[up]), interpolation="bilinear",
        )  # fmt: skip
        axes.set_axis_off()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="jpg", dpi=90, facecolor="black", pil_kwargs={"quality": 82})
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
