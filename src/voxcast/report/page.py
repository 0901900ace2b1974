"""The page: everything that was found, in one HTML file that loads nothing."""

from __future__ import annotations

import math
import re
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.allocation.pricing import Prices
from voxcast.analysis.composed_runs import COMPOSITIONS
from voxcast.analysis.devices import compare_devices, missing_side
from voxcast.analysis.drift import drift
from voxcast.analysis.noise import repeat_noise
from voxcast.analysis.wall_times import wall_times
from voxcast.phases.logged import phase_summary
from voxcast.report import coverage, figures, run_figures, run_tables, studies, tables
from voxcast.report.formatting import counted, heading, percent
from voxcast.report.inputs import FULL_SCALE, HEADER_ONLY
from voxcast.report.slices import pictures
from voxcast.report.summary import example

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.report.narrative import Findings

TEMPLATE = "page.html.j2"
LEAST = 3  # of the work that gains least by a GPU


def page(findings: Findings, project: Path) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    findings : Findings
        What the evidence says.
    project : Path
        Folder that the catalogue's paths count from; slices are read there.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"kept": _kept, "heading": heading}
    source = resources.files("voxcast.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(source).render(_content(findings, project)) + "\n"


def _content(findings: Findings, project: Path) -> dict[str, Any]:
    evidence, verdict = findings.evidence, findings.verdict
    done = evidence.completed
    phases = phase_summary(_phases(evidence.phases, done))
    own = evidence.predicted(verdict.winner)
    noises = repeat_noise(done, by=("app", "device", "cpus", "scale"))
    metrics = {
        name: evidence.metrics[name]
        for name in [*verdict.cross_validated, HEADER_ONLY]
        if name in evidence.metrics
    }
    paths = evidence.catalogue.dropna(subset="volume_id")
    names = {
        str(v): Path(str(p)).name for v, p in zip(paths["volume_id"], paths["path"], strict=True)
    }
    return {
        **_of_devices(findings, names),
        **_of_variation(done, names),
        "f": findings,
        "v": verdict,
        "headline": findings.headline(),
        "cautions": findings.cautions(),
        "measured_table": run_tables.measured(evidence.runs),
        "noise_table": run_tables.noise_floor(noises) if noises else None,
        "size_panels": run_figures.size_panels(_sized(done, evidence.catalogue)),
        "speedup_panels": run_figures.speedup_panels(findings.comparisons),
        "cpu_table": run_tables.configurations(findings.comparisons),
        "phase_panels": run_figures.phase_panels(phases),
        "phase_table": run_tables.phases(phases) if len(phases) else None,
        "error_panels": figures.error_panels(verdict, findings.floor_percent),
        "model_tables": [
            tables.cross_validated(verdict, evidence.leaderboard, findings.floor_percent),
            *([tables.tested(verdict, findings.floor_percent)] if verdict.tested else []),
        ],
        "study_tables": studies.tables(evidence.studies),
        "importance_table": tables.importance(evidence.shuffled),
        "dependence_panels": figures.dependence_panels(evidence.dependence),
        "scatters": figures.scatter_panels(own),
        "error_table": tables.errors(own, noises) if len(own) else None,
        "coverage_panels": (
            figures.coverage_panels(metrics, verdict.upper_quantile) if metrics else []
        ),
        "bounds_table": tables.bounds(
            metrics.get(verdict.winner, {}),
            evidence.receipt["challenger"]["risk_at_upper_quantile"],
        ),
        "held_table": coverage.held(own) if len(own) else None,
        "pictures": pictures(own, evidence.catalogue, project),
        "own_images": any(Path(str(p)).is_absolute() for p in evidence.catalogue["path"]),
        "problems": _problems(evidence.catalogue),
        "facts": _facts(findings),
        "example": example(findings),
    }


def _of_devices(findings: Findings, names: dict[str, str]) -> dict[str, Any]:
    """CPU against GPU, on all that is on record."""
    evidence, prices = findings.evidence, Prices()
    missing = missing_side(evidence.on_record)
    found = (
        []
        if missing
        else compare_devices(
            evidence.on_record, evidence.phases_on_record, prices, compositions=COMPOSITIONS
        )
    )
    return {
        "devices_missing": missing,
        "device_panels": run_figures.device_panels(found),
        "device_table": run_tables.devices(found, prices) if found else None,
        "device_notes": [
            f"{one.label}, on {one.machines}. Gain least: {'; '.join(one.least(LEAST, names))}."
            for one in found
            if not one.phase
        ],
        "composed": any(one.composed for one in found),
    }


def _of_variation(done: pd.DataFrame, names: dict[str, str]) -> dict[str, Any]:
    """How wall time varies, and how the machine drifted."""
    kinds = done["host_class"].value_counts().index
    machines = {str(name): f"machine {n}" for n, name in enumerate(kinds, 1) if len(kinds) > 1}
    groups, drifted = wall_times(done, machines), drift(done)
    change = None
    if drifted is not None:
        anchor, share = drifted.largest
        noise = {n.app: n.cv["cpu_s"].value for n in repeat_noise(done, by=("app",))}
        beside = f"; its repeats differ by {percent(noise.get(anchor.app, math.nan))}"
        way = "up" if share > 0 else "down"
        change = f"{percent(100 * abs(share))} ({anchor.app}, {way}{beside})"
    return {
        "variation_panels": run_figures.variation_panels(groups),
        "variation_tables": [
            f(groups) for f in (run_tables.variations, run_tables.laws) if groups
        ],
        "machines": [f"{short}: {name}" for name, short in machines.items()],
        "drift_table": None if drifted is None else run_tables.drift(drifted, names),
        "drift": change,
    }


def _phases(phases: pd.DataFrame, done: pd.DataFrame) -> pd.DataFrame:
    """Phases of full-scale runs, or of all if there are no others; those on a GPU apart."""
    full = done[done["scale"] == FULL_SCALE]
    runs = full if len(full) else done
    gpu = set(runs.loc[runs["gpus"] > 0, "cell_key"])
    own = phases[phases["cell_key"].isin(runs["cell_key"])]
    on_gpu = own["cell_key"].isin(gpu)
    return own.assign(app=own["app"].where(~on_gpu, own["app"] + " on GPU"))


def _kept(text: str) -> str:
    """Let a cell break only before a bracket and after a comma or dot, not before a unit."""
    return re.sub(r"(?<![,·]) (?![(·])", "\u00a0", text)


def _sized(runs: pd.DataFrame, catalogue: pd.DataFrame) -> pd.DataFrame:
    good = catalogue[catalogue["problem"].isna()].drop_duplicates("volume_id")
    sizes = good[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1) / 1e6
    megavoxels = dict(zip(good["volume_id"], sizes, strict=True))
    sized = runs.assign(megavoxels=runs["volume_id"].map(megavoxels))
    return sized[sized["megavoxels"].notna() & (sized["cpu_s"] > 0)]


def _problems(catalogue: pd.DataFrame) -> list[str]:
    return [
        f"{counted(n, 'volume')}: {reason}"
        for reason, n in Counter(catalogue["problem"].dropna()).most_common(10)
    ]


def _facts(findings: Findings) -> dict[str, str]:
    """Where the numbers come from: versions, machines, methods, hashes."""
    runs, receipt = findings.evidence.runs, findings.evidence.receipt
    challenger = receipt["challenger"]
    versions = runs[["app", "app_version"]].drop_duplicates().sort_values("app")
    loads = runs["load1"].dropna()
    started = sorted(runs["started_at"].dropna())
    facts = {
        "Applications": ", ".join(f"{a} version {n}" for a, n in versions.itertuples(index=False)),
        "Machines": ", ".join(sorted(runs["host_class"].unique())),
        "Measured": f"{started[0]} to {started[-1]}" if started else "never",
        "Load before a run": f"median {loads.median():.2f}" if len(loads) else "unknown",
        "Memory by": ", ".join(sorted(runs["memory_method"].unique())),
        "CPU time by": ", ".join(sorted(runs["cpu_method"].unique())),
        "Parameters": _parameters(challenger["params"]),
        "Training table": f"{counted(int(receipt['training']['runs']), 'run')}, SHA-256 "
        f"{receipt['training']['table_sha256']}",
        "Decision": f"{receipt['reason']}: {receipt['detail']}",
        "Test table opened": counted(findings.verdict.test_openings, "time"),
    }
    return {name: text or "none" for name, text in facts.items()}


def _parameters(params: dict[str, Any]) -> str:
    """Write a recipe: parameters, or the weights of a blend's members for CPU time."""
    if "weights" in params:
        return ", ".join(f"{name} {own[0]:.2f}" for name, own in sorted(params["weights"].items()))
    return ", ".join(f"{k} = {v}" for k, v in sorted(params.items()))
