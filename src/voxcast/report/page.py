"""The main page of the report, and its summary of about ten lines."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.strategies import Settings, request_sequence
from voxcast.allocation.site import Prices
from voxcast.analysis.devices import compare_devices
from voxcast.analysis.job_drift import monthly_coverage
from voxcast.analysis.run_groups import FULL_SCALE, by_configuration, repeat_noise, wall_times
from voxcast.features.descriptions import quantity_title, value_range
from voxcast.files import canonical_json
from voxcast.laws.intervals import Interval
from voxcast.phases.logged import phase_summary
from voxcast.quantities import counted
from voxcast.records import TARGETS
from voxcast.report import plot, tables
from voxcast.report.canvas import drawing
from voxcast.report.figures import coverage_by_month, requested_against_used, scans
from voxcast.report.phase_page import memory_drawings, traced_runs
from voxcast.report.results import mean_error
from voxcast.report.sections import Part, Section, Table
from voxcast.report.sections import page as render
from voxcast.report.wording import (
    TITLES,
    allocation_label,
    cpu_label,
    cpu_verdict,
    device_label,
    heading,
    missing_devices,
    percent,
    percent_interval,
    run_group_label,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from voxcast.analysis.run_groups import WallTimes
    from voxcast.laws.families import Law
    from voxcast.report.inputs import ReportInputs
    from voxcast.report.results import AppResults, Results
    from voxcast.report.sections import Drawing

NOISE_GROUPS = ("app", "device", "cpus", "scale")
TOP_FEATURES = 3
# Strategies whose cost is shown, and the points of a law that it is computed on.
COMPARED_STRATEGIES = ("mean_by_mean", "mean_doubling", "median_by_median", "equal_probability")
POINTS = 200
MAX_DISTRIBUTIONS = 4  # in one figure, so that they stay distinct
_BIN = ".venv/bin/"  # of `make setup`
MLFLOW_UI = "http://127.0.0.1:5000"  # of `mlflow ui`


def page(results: Results, project: Path) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    results : Results
        Results of the pass.
    project : Path
        Folder that the paths of the catalogue refer to; slices are read there.
    """
    inputs, groups = results.inputs, wall_times(results.inputs.completed)
    cards = {"Noise floor": heading(results.floor()), "More CPUs": results.cpu_scaling()}
    headline = results.of_each(lambda app: app.headline())
    head = Part(headline, [], results.measured(), cards, results.cautions())
    parts = [
        *(_model(app, inputs, project) for app in results.apps),
        Part("Runs", list(_runs(results, groups, project))),
        Part("Requests", list(_requests(inputs, groups))),
        Part("Parallel programs", traced_runs(inputs.completed, project)),
        Part("Provenance", [_provenance(results)]),
    ]
    return render(head, [part for part in parts if part.sections], commands="\n".join(
        [f"{binaries()}voxcast predict {example(inputs)}", f"{binaries()}voxcast serve",
         f"{binaries()}mlflow ui      # then {finals(inputs)}"]
    ))  # fmt: skip


def _model(app: AppResults, inputs: ReportInputs, project: Path) -> Part:
    winner, predictions = app.winner, app.winner_predictions
    law = "".join(
        f" The law of {TITLES[target]}: {words}."
        for target, words in inputs.laws.get(app.app, {}).items()
    )
    sections = [
        Section(
            "Error by model",
            "Mean absolute error of each model by cross-validation (●) and on unseen subjects (◆, "
            "with 95 % interval); the dashed line is the noise floor, which no model can beat."
            + law,
            [_errors(app, target) for target in TARGETS],
            [tables.models(app)],
        )
    ]
    if len(predictions):
        sections.append(Section(
            "Predicted against measured",
            f"Predictions of {winner} for unseen subjects; bars reach to the upper bound, and ✕ "
            "marks a run above it.",
            [_predicted(group.runs, run_group_label(group), target)
             for group in by_configuration(predictions) for target in TARGETS],
        ))  # fmt: skip
    metrics = inputs.metrics[app.app].get(winner, {}) if app.tested else {}
    risk = app.receipt["challenger"]["risk_at_upper_quantile"]
    sections.append(Section(
        "Errors and bounds",
        f"How often the bounds of {winner} held, and how much they exceed what was used.",
        tables=[tables.bounds(metrics, risk)],
    ))  # fmt: skip
    if effects := _effects(app.app, inputs):
        sections.append(Section(
            "Effect of the most important features",
            "Mean prediction over the range of one feature, relative to that at its median.",
            [effects],
        ))  # fmt: skip
    if drawn := scans(predictions, inputs.catalogue, project):
        yours = any(Path(str(p)).is_absolute() for p in inputs.catalogue["path"])
        private = " These slices show your images: share this page only with people who may see "
        sections.append(Section(
            "Best and worst scans",
            "Unseen volumes with the smallest and the largest error of CPU time, in sagittal, "
            "coronal and axial slices." + (private + "them.") * yours,
            drawn,
        ))  # fmt: skip
    cards = {
        "Champion": app.champion(), "Error on new subjects": app.on_new_subjects(),
        "Error on a new day": app.on_new_days(), "Upper bounds": heading(app.calibration()),
    }  # fmt: skip
    return Part(app.app, sections, f"{heading(app.learned_from())}.", cards, app.cautions())


def _errors(app: AppResults, target: str) -> Drawing:
    by_family = {}
    for family, errors in app.cross_validated.items():
        validated = Interval(errors[target], float("nan"), float("nan"), 0)
        by_family[family] = [validated, *(e[target] for e in [app.tested.get(family)] if e)]
    names = ", ".join(f"{f} {percent(e[target])}" for f, e in app.cross_validated.items())
    title = f"{heading(TITLES[target])}: error in %"
    floor = app.floor_percent.get(target)

    def draw(axes: Any) -> None:
        plot.intervals(by_family, axes, line=floor, bold=app.winner).set_title(title)

    alt = f"Error of {TITLES[target]} of {app.app} by model: {names}"
    return drawing(draw, alt, size_in=(4.2, 1.2 + 0.34 * len(by_family)))


def _predicted(runs: pd.DataFrame, label: str, target: str) -> Drawing:
    error = mean_error(runs, target)
    above = int((runs[f"{target}_actual"] > runs[f"{target}_upper"]).sum())
    caption = (
        f"{label}, {TITLES[target]}: mean error {percent_interval(error)} on "
        f"{counted(len(runs), 'run')} of {counted(error.subjects, 'subject')}, {above} above the "
        "upper bound."
    )
    table = runs.rename(columns={f"{target}_actual": target})
    draw = partial(plot.calibration, table, target=target)
    return drawing(draw, f"Predicted against measured: {caption}", caption)


def _effects(app: str, inputs: ReportInputs) -> Drawing | None:
    shuffled = inputs.shuffled[(inputs.shuffled["app"] == app) & (inputs.shuffled["rise"] > 0)]
    rises = shuffled.set_index("feature")["rise"].astype(float)  # texts, if the file has no row
    important = rises.nlargest(TOP_FEATURES)
    if important.empty:
        return None
    dependence = inputs.dependence[inputs.dependence["app"] == app]
    texts = []
    for feature, rise in important.items():
        values = dependence.loc[dependence["feature"] == feature, "value"]
        reach = value_range(str(feature), values.iloc[0], values.iloc[-1]) if len(values) else ""
        texts.append(f"{quantity_title(str(feature))} ({rise:+.1f} points) {reach}".strip())
    caption = (
        "Increase of the error when a feature is shuffled, and its range from the 5 % to the 95 % "
        f"quantile: {'; '.join(texts)}."
    )
    titles = {str(name): quantity_title(str(name)) for name in important.index}
    draw = partial(plot.effects, dependence, titles)
    return drawing(draw, f"Effect of features on {app}. {caption}", caption)


def _runs(results: Results, groups: list[WallTimes], project: Path) -> Iterator[Section]:
    inputs, completed = results.inputs, results.inputs.completed
    noise = repeat_noise(completed, by=NOISE_GROUPS)
    yield Section(
        "Measured runs",
        "What was measured, and how much repeats of the same run differ.",
        tables=[tables.measured(inputs.runs), *([tables.noise_floor(noise)] if noise else [])],
    )
    labelled = {
        f"{group.app}: {allocation_label(group.configuration, group.scale)}"
        + (f", {group.machine}" if completed["host_class"].nunique() > 1 else ""): group
        for group in groups
    }
    if labelled:
        yield Section(
            "Distributions of wall time",
            "Measured distributions over volumes or settings as steps, and the closest "
            "distribution of each dashed.",
            [
                _distributions(dict([*labelled.items()][first : first + MAX_DISTRIBUTIONS]))
                for first in range(0, len(labelled), MAX_DISTRIBUTIONS)
            ],
            [tables.variations(labelled)],
        )
    yield _cpus(results)
    yield _devices(results)
    phases = _phases(inputs.phases, completed)
    if len(phases):
        cpus = phases["app"] + ", CPUs: " + phases["cpus"].astype(str)
        draw = partial(plot.phases, phases.assign(app=cpus))
        alt = f"Mean time of the phases of {', '.join(dict.fromkeys(cpus))}"
        yield Section(
            "Time and memory by phase",
            "Where the time goes: mean duration of the phases that applications logged.",
            [drawing(draw, alt, size_in=(8.4, 3.0))],
            [tables.phases(phase_summary(phases))],
        )
    if memory := memory_drawings(completed, project):
        sentence = "Memory of the run of median wall time of each application, by numbered phase."
        yield Section("Memory over time", sentence, memory)


def _distributions(groups: dict[str, Any]) -> Drawing:
    alt = f"Distribution of wall time of {'; '.join(groups)}"
    return drawing(partial(plot.distributions, groups), alt, size_in=(4.2, 3.6))


def _cpus(results: Results) -> Section:
    comparisons, title = results.cpu_comparisons, "CPU scaling"
    if not comparisons:
        sentence = "Only one configuration was measured, so there is nothing to compare."
        return Section(title, sentence)
    labels = [f"{cpu_label(c)}, {c.device}: {c.cpus} against {c.base_cpus}" for c in comparisons]
    gains = {label: [c.speedup] for label, c in zip(labels, comparisons, strict=True)}
    verdicts = "; ".join(f"{cpu_label(c)}: {cpu_verdict(c)}" for c in comparisons)
    sentence = "Speed-up with more CPUs, paired by volume, with 95 % interval over subjects."
    drawn = _speedups(gains, f"{title}. {verdicts}.")
    return Section(title, sentence, [drawn], [tables.configurations(comparisons)])


def _devices(results: Results) -> Section:
    """Compare CPU and GPU on all runs on record of the applications of this pass."""
    inputs, prices, title = results.inputs, Prices(), "CPU against GPU"
    runs = inputs.on_record[inputs.on_record["app"].isin(set(inputs.runs["app"]))]
    if missing := missing_devices(runs):
        return Section(title, f"{heading(missing)}.")
    comparisons = compare_devices(runs, inputs.phases_on_record, prices)
    if not comparisons:
        sentence = "Runs on CPUs and on GPUs are on record, but no work was run on both."
        return Section(title, sentence)
    gains = {device_label(comparison): [comparison.speedup] for comparison in comparisons}
    texts = ", ".join(f"{label} {gain.value:.3g}" for label, [gain] in gains.items())
    sentence = "Speed-up on the GPU of whole runs and of their phases, over the same work."
    drawn = _speedups(gains, f"Speed-up on the GPU. {texts}.")
    return Section(title, sentence, [drawn], [tables.devices(comparisons, prices)])


def _speedups(gains: dict[str, list[Interval]], alt: str) -> Drawing:
    def draw(axes: Any) -> None:
        plot.intervals(gains, axes, line=1.0, log=True).set_xlabel("speed-up")

    return drawing(draw, alt, size_in=(6.0, 1.1 + 0.32 * len(gains)))


def _phases(phases: pd.DataFrame, completed: pd.DataFrame) -> pd.DataFrame:
    """Return phases of full-scale runs, or of all runs if none is; GPU runs get a label."""
    full_scale = completed[completed["scale"] == FULL_SCALE]
    runs = full_scale if len(full_scale) else completed
    gpu = set(runs.loc[runs["gpus"] > 0, "cell_key"])
    selected = phases[phases["cell_key"].isin(runs["cell_key"])]
    on_gpu = selected["cell_key"].isin(gpu)
    return selected.assign(app=selected["app"].where(~on_gpu, selected["app"] + " on GPU"))


def _requests(inputs: ReportInputs, groups: list[WallTimes]) -> Iterator[Section]:
    if len(inputs.jobs):
        sentence = "What submitted jobs requested and used; those on the line used all of it."
        yield Section("Requested against used", sentence, [requested_against_used(inputs.jobs)])
    if len(months := monthly_coverage(inputs.jobs, None)):
        sentence = "Jobs below the bound that they were submitted with; dashed: as stated."
        yield Section("Coverage by month", sentence, [coverage_by_month(months)])
    # Of each application the group with most values, and the closest law of positive lengths.
    laws = {
        group.app: fit.law
        for group in sorted(groups, key=lambda group: group.varied.n)
        for fit in reversed(group.varied.fits)
        if fit.law.support[0] >= 0
    }
    if laws:
        sentence = (
            "Expected cost of sequences of requests for a run whose time is not predicted, over "
            "that of knowing it beforehand."
        )
        yield Section("Cost of strategies", sentence, [_costs(app, laws[app]) for app in laws])


def _costs(app: str, law: Law) -> Drawing:
    import pandas as pd

    sequences = [
        request_sequence(name, law, CostModel(1.0), Settings(POINTS))
        for name in COMPARED_STRATEGIES
    ]
    costs = pd.DataFrame([vars(sequence) for sequence in sequences])
    alt = f"Cost of request strategies for {app}"
    return drawing(partial(plot.requests, costs), alt, app, size_in=(4.2, 2.6))


def _provenance(results: Results) -> Section:
    """Return the provenance of the numbers: versions, machines, methods, hashes."""
    runs = results.inputs.runs
    versions = runs[["app", "app_version"]].drop_duplicates().sort_values("app")
    started = sorted(runs["started_at"].dropna())
    facts = {
        "Applications": ", ".join(f"{a} version {n}" for a, n in versions.itertuples(index=False)),
        "Machines": ", ".join(sorted(runs["host_class"].unique())),
        "Measured": f"{started[0]} to {started[-1]}" if started else "never",
        "Load before a run": f"median {runs['load1'].median():.2f}",
        "Memory measured by": ", ".join(sorted(runs["memory_method"].unique())),
        "CPU time measured by": ", ".join(sorted(runs["cpu_method"].unique())),
        "Parameters": results.of_each(lambda a: canonical_json(a.receipt["challenger"]["params"])),
        "Training table": results.of_each(
            lambda a: "{runs} runs, SHA-256 {table_sha256}".format(**a.receipt["training"])
        ),
        "Decision": results.of_each(lambda a: "{reason}: {detail}".format(**a.receipt)),
    }
    rows = [{"Fact": name, "Value": text or "none"} for name, text in facts.items()]
    sentence = (
        "All intervals are 95 % intervals: of means, Student's t with the subject as cluster; of "
        "rates, exact binomial over subjects; of coefficients of variation, chi-squared."
    )
    return Section("Where the numbers come from", sentence, tables=[Table("", rows)])


def summary(results: Results, report: str) -> str:
    """Return about ten lines: measurements, the champion, its errors, and the next commands.

    Parameters
    ----------
    results : Results
        Results of the pass.
    report : str
        Path of the page, relative to the current folder.
    """
    lines = {
        "measured": results.measured(),
        "repeats": results.floor(),
        "CPUs": results.cpu_scaling(),
        "champion": results.of_each(lambda app: app.champion()),
        "error": results.of_each(lambda app: app.on_new_subjects()),
        "another day": results.of_each(lambda app: app.on_new_days()),
        "bounds": results.of_each(lambda app: app.calibration()),
        "report": report,
        "next": f"{binaries()}voxcast predict {example(results.inputs)}",
        "compare": f"{binaries()}mlflow ui, then {finals(results.inputs)}",
    }
    return "".join(f"{name:<13} {' '.join(text.split())}\n" for name, text in lines.items())


def example(inputs: ReportInputs) -> str:
    """Return a usable volume and an application for `voxcast predict`, quoted for a shell.

    It is a volume of an unseen subject, if there is one.
    """
    usable = inputs.catalogue.query("problem.isna()")
    trained_on = {*inputs.modelled["subject"]} - {*inputs.predictions["subject"]}
    unseen = usable[~usable["subject"].isin(trained_on)]
    paths = [*unseen["path"], *usable["path"], "IMAGE.nii.gz"]
    return shlex.join([str(paths[0]), "--app", min(inputs.receipt["apps"])])


def finals(inputs: ReportInputs) -> str:
    """Return the address at which MLflow shows the runs."""
    uri = str(inputs.marker["tracking_uri"])
    address = uri.rstrip("/") if uri.startswith(("http://", "https://")) else MLFLOW_UI
    return f"{address}/#/experiments/{inputs.marker['experiment_id']}"


def binaries() -> str:
    """Return the prefix of commands in the project of the current folder."""
    return _BIN if Path(_BIN, "voxcast").is_file() else ""
