"""The main page of the report, and its summary of about ten lines."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.site import Prices
from voxcast.analysis.devices import compare_devices, devices_without_runs
from voxcast.analysis.drift import drift
from voxcast.analysis.noise import RepeatNoise, repeat_noise
from voxcast.analysis.run_groups import FULL_SCALE
from voxcast.analysis.wall_times import wall_times
from voxcast.phases.logged import phase_summary
from voxcast.quantities import counted
from voxcast.report import run_figures, run_tables
from voxcast.report.app_section import app_sections, overview
from voxcast.report.cautions import run_cautions
from voxcast.report.phase_page import memory_panels, traced_runs
from voxcast.report.sentences import cpu_verdict, drift_sentence, missing_devices
from voxcast.report.templates import render
from voxcast.report.wording import cpu_label, device_label, device_machines, smallest_gains
from voxcast.runs.speed import at_usual_speed, speed_deviations

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.report.inputs import ReportInputs
    from voxcast.report.narrative import Narrative


# A space after a number or a time unit and before a unit, or around "to", "of" and "±".


TEMPLATE = "page.html.j2"
STUDIES_PAGE = "studies.html"  # in the folder of the main page, written by another stage
NOISE_GROUPS = ("app", "device", "cpus", "scale")
SMALLEST_GAINS = 3  # listed for each comparison of devices


def page(narrative: Narrative, project: Path) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    narrative : Narrative
        Results of the pass.
    project : Path
        Folder that the paths of the catalogue refer to; slices are read there.
    """
    return render(TEMPLATE, _content(narrative, project))


def _content(narrative: Narrative, project: Path) -> dict[str, Any]:
    inputs = narrative.inputs
    completed = inputs.completed
    phases = phase_summary(_phases(inputs.phases, completed))
    noise = repeat_noise(completed, by=NOISE_GROUPS)
    paths = inputs.catalogue.dropna(subset="volume_id")
    names = {
        str(v): Path(str(p)).name for v, p in zip(paths["volume_id"], paths["path"], strict=True)
    }
    return {
        **_of_devices(narrative, names),
        **_of_variation(completed, names),
        "narrative": narrative,
        "headline": narrative.headline(),
        "cautions": run_cautions(narrative),
        "sections": app_sections(narrative, noise, project),
        "overview": overview(narrative.apps) if len(narrative.apps) > 1 else None,
        "measured_table": run_tables.measured(inputs.runs),
        "noise_table": (
            run_tables.noise_floor(noise, _normalised_noise(inputs)) if noise else None
        ),
        "size_panels": run_figures.size_panels(_sized(completed, inputs.catalogue)),
        "speedup_panels": run_figures.speedup_panels(narrative.cpu_comparisons),
        "cpu_lines": [f"{cpu_label(c)}: {cpu_verdict(c)}." for c in narrative.cpu_comparisons],
        "cpu_table": run_tables.configurations(narrative.cpu_comparisons),
        "phase_panels": run_figures.phase_panels(phases),
        "phase_table": run_tables.phases(phases) if len(phases) else None,
        "memory_panels": memory_panels(completed, project),
        "traced_runs": traced_runs(completed, project),
        "studies_page": STUDIES_PAGE,
        "has_user_images": any(Path(str(p)).is_absolute() for p in inputs.catalogue["path"]),
        "problems": _problems(inputs.catalogue),
        "facts": _facts(narrative),
        "example": example(narrative),
        "binaries": binaries(),
        "finals": finals(inputs),
    }


def _normalised_noise(inputs: ReportInputs) -> list[RepeatNoise]:
    """Return the noise that is left at the usual speed of the machine; empty if it is unknown."""
    on_record = inputs.on_record[inputs.on_record["outcome"] == "completed"]
    deviations = speed_deviations(on_record, inputs.phases_on_record)
    if not (deviations["gauge"] != "").any():
        return []
    return repeat_noise(at_usual_speed(inputs.completed, deviations), by=NOISE_GROUPS)


def _of_devices(narrative: Narrative, names: dict[str, str]) -> dict[str, Any]:
    """Compare CPU and GPU on all runs on record of the applications of this pass."""
    inputs, prices = narrative.inputs, Prices()
    apps = set(inputs.runs["app"])
    on_record = inputs.on_record[inputs.on_record["app"].isin(apps)]
    missing = missing_devices(devices_without_runs(on_record))
    comparisons = [] if missing else compare_devices(on_record, inputs.phases_on_record, prices)
    return {
        "devices_missing": missing,
        "device_panels": run_figures.device_panels(comparisons),
        "device_table": run_tables.devices(comparisons, prices) if comparisons else None,
        "device_notes": [
            f"{device_label(comparison)}, on {device_machines(comparison)}. Smallest speed-up: "
            f"{'; '.join(smallest_gains(comparison, SMALLEST_GAINS, names))}."
            for comparison in comparisons
            if not comparison.phase
        ],
    }


def _of_variation(completed: pd.DataFrame, names: dict[str, str]) -> dict[str, Any]:
    """Describe the variation of wall time and the drift of the machine."""
    host_classes = completed["host_class"].value_counts().index
    machines = {
        str(name): f"machine {n}"
        for n, name in enumerate(host_classes, 1)
        if len(host_classes) > 1
    }
    groups, drifted = wall_times(completed, machines), drift(completed)
    sentence = None
    if drifted is not None:
        noise = {n.app: n.cv["cpu_s"].value for n in repeat_noise(completed, by=("app",))}
        sentence = drift_sentence(drifted, noise.get(drifted.largest[0].app))
    return {
        "variation_panels": run_figures.variation_panels(groups),
        "variation_tables": [
            f(groups) for f in (run_tables.variations, run_tables.laws) if groups
        ],
        "machines": [f"{short}: {name}" for name, short in machines.items()],
        "drift_table": (None if drifted is None else run_tables.anchor_changes(drifted, names)),
        "drift": sentence,
    }


def _phases(phases: pd.DataFrame, completed: pd.DataFrame) -> pd.DataFrame:
    """Return phases of full-scale runs, or of all runs if none is; GPU runs get a label."""
    full_scale = completed[completed["scale"] == FULL_SCALE]
    runs = full_scale if len(full_scale) else completed
    gpu = set(runs.loc[runs["gpus"] > 0, "cell_key"])
    selected = phases[phases["cell_key"].isin(runs["cell_key"])]
    on_gpu = selected["cell_key"].isin(gpu)
    return selected.assign(app=selected["app"].where(~on_gpu, selected["app"] + " on GPU"))


def _sized(runs: pd.DataFrame, catalogue: pd.DataFrame) -> pd.DataFrame:
    usable = catalogue[catalogue["problem"].isna()].drop_duplicates("volume_id")
    sizes = usable[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1) / 1e6
    megavoxels = dict(zip(usable["volume_id"], sizes, strict=True))
    sized = runs.assign(megavoxels=runs["volume_id"].map(megavoxels))
    return sized[sized["megavoxels"].notna() & (sized["cpu_s"] > 0)]


def _problems(catalogue: pd.DataFrame) -> list[str]:
    return [
        f"{counted(n, 'volume')}: {reason}"
        for reason, n in Counter(catalogue["problem"].dropna()).most_common(10)
    ]


def _facts(narrative: Narrative) -> dict[str, str]:
    """Return the provenance of the numbers: versions, machines, methods, hashes."""
    inputs, runs = narrative.inputs, narrative.inputs.runs
    receipts = {a.app: inputs.receipt_of(a.app) for a in narrative.apps}
    versions = runs[["app", "app_version"]].drop_duplicates().sort_values("app")
    loads = runs["load1"].dropna()
    started = sorted(runs["started_at"].dropna())
    facts = {
        "Applications": ", ".join(f"{a} version {n}" for a, n in versions.itertuples(index=False)),
        "Machines": ", ".join(sorted(runs["host_class"].unique())),
        "Measured": f"{started[0]} to {started[-1]}" if started else "never",
        "Load before a run": f"median {loads.median():.2f}" if len(loads) else "unknown",
        "Memory measured by": ", ".join(sorted(runs["memory_method"].unique())),
        "CPU time measured by": ", ".join(sorted(runs["cpu_method"].unique())),
        "Parameters": narrative.of_each(
            lambda a: _parameters(receipts[a.app]["challenger"]["params"])
        ),
        "Training table": narrative.of_each(
            lambda a: (
                f"{counted(int(receipts[a.app]['training']['runs']), 'run')}, SHA-256 "
                f"{receipts[a.app]['training']['table_sha256']}"
            )
        ),
        "Decision": narrative.of_each(
            lambda a: f"{receipts[a.app]['reason']}: {receipts[a.app]['detail']}"
        ),
        "Test runs opened": _openings(inputs.receipt["test_openings"]),
    }
    return {name: text or "none" for name, text in facts.items()}


def _openings(opening_counts: dict[str, int]) -> str:
    """Write how often the runs of the test table, and any of its subjects, were opened."""
    same_runs, any_subject = (opening_counts[key] for key in ("same_runs", "any_subject"))
    return f"{counted(same_runs, 'time')}; any of their subjects {counted(any_subject, 'time')}"


def _parameters(params: dict[str, Any]) -> str:
    """Write parameters, or the weights of the members of a blend for CPU time."""
    if "weights" in params:
        weights = sorted(params["weights"].items())
        return ", ".join(f"{name} {by_target[0]:.2f}" for name, by_target in weights)
    return ", ".join(f"{k} = {v}" for k, v in sorted(params.items()))


_BIN = ".venv/bin/"  # of `make setup`
MLFLOW_UI = "http://127.0.0.1:5000"  # of `mlflow ui`


def summary(narrative: Narrative, report: str) -> str:
    """Return about ten lines: measurements, the champion, its errors, and the next commands.

    Parameters
    ----------
    narrative : Narrative
        Results of the pass.
    report : str
        Path of the page, relative to the current folder.
    """
    lines = [
        ("measured", narrative.measured()),
        ("repeats", narrative.floor()),
        ("CPUs", narrative.cpu_scaling()),
        ("champion", narrative.champion()),
        ("error by CV", narrative.cross_validated()),
        ("on unseen", narrative.tested()),
        ("another day", narrative.on_new_days()),
        ("bounds", narrative.calibration()),
        ("report", report),
        ("next", f"{binaries()}voxcast predict {example(narrative)}"),
        ("or", f"{binaries()}mlflow ui, then {finals(narrative.inputs)}"),
    ]
    return "".join(f"{name:<12} {' '.join(text.split())}\n" for name, text in lines)


def example(narrative: Narrative) -> str:
    """Return a usable volume and an application for `voxcast predict`, quoted for a shell.

    It is a volume of an unseen subject, if there is one.
    """
    inputs = narrative.inputs
    usable = inputs.catalogue.query("problem.isna()")
    trained_on = {*inputs.modelled["subject"]} - {*inputs.predictions["subject"]}
    unseen = usable[~usable["subject"].isin(trained_on)]
    paths = [*unseen["path"], *usable["path"], "IMAGE.nii.gz"]
    app = [word for name in inputs.apps[:1] for word in ("--app", name)]
    return shlex.join([str(paths[0]), *app])


def finals(inputs: ReportInputs) -> str:
    """Return the address at which MLflow shows the runs."""
    uri = str(inputs.marker["tracking_uri"])
    address = uri.rstrip("/") if uri.startswith(("http://", "https://")) else MLFLOW_UI
    return f"{address}/#/experiments/{inputs.marker['experiment_id']}"


def binaries() -> str:
    """Return the prefix of commands in the project of the current folder."""
    return _BIN if Path(_BIN, "voxcast").is_file() else ""
