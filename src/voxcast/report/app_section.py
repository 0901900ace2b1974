"""The part of the page about one application: its models, their errors, bounds and volumes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.analysis.model_comparison import HEADER_ONLY
from voxcast.quantities import counted
from voxcast.report import figures, tables
from voxcast.report.cautions import app_cautions
from voxcast.report.coverage import coverage_table
from voxcast.report.formatting import percent, percent_interval
from voxcast.report.reliability import reliability_panels
from voxcast.report.slices import pictures
from voxcast.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.analysis.noise import RepeatNoise
    from voxcast.report.app_narrative import AppNarrative
    from voxcast.report.figures import Drawing
    from voxcast.report.narrative import Narrative
    from voxcast.report.slices import Picture


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
