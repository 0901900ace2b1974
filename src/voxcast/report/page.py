"""The page: everything that was found, in one HTML file that loads nothing."""

from __future__ import annotations

import re
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.phases.logged import phase_summary
from voxcast.report import figures, tables
from voxcast.report.evidence import HEADER_ONLY
from voxcast.report.intervals import counted, heading
from voxcast.report.noise import repeat_noise
from voxcast.report.slices import pictures
from voxcast.report.summary import example

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.report.findings import Findings

TEMPLATE = "page.html.j2"


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
    phases = phase_summary(evidence.phases[evidence.phases["cell_key"].isin(done["cell_key"])])
    own = evidence.predicted(verdict.winner)
    noises = repeat_noise(done, by=("app", "device", "cpus"))
    metrics = {
        name: evidence.metrics[name]
        for name in [*verdict.cross_validated, HEADER_ONLY]
        if name in evidence.metrics
    }
    return {
        "f": findings,
        "v": verdict,
        "headline": findings.headline(),
        "cautions": findings.cautions(),
        "measured_table": tables.measured(evidence.runs),
        "noise_table": tables.noise_floor(noises) if noises else None,
        "size_panels": figures.size_panels(_sized(done, evidence.catalogue)),
        "speedup_panels": figures.speedup_panels(findings.comparisons),
        "cpu_table": tables.configurations(findings.comparisons),
        "phase_panels": figures.phase_panels(phases),
        "phase_table": tables.phases(phases) if len(phases) else None,
        "error_panels": figures.error_panels(verdict, findings.floor_percent),
        "model_tables": [
            tables.cross_validated(verdict, evidence.leaderboard, findings.floor_percent),
            *([tables.tested(verdict, findings.floor_percent)] if verdict.tested else []),
        ],
        "scatters": figures.scatter_panels(own),
        "error_table": tables.errors(own, noises) if len(own) else None,
        "coverage_panels": (
            figures.coverage_panels(metrics, verdict.upper_quantile) if metrics else []
        ),
        "bounds_table": tables.bounds(
            metrics.get(verdict.winner, {}),
            evidence.receipt["challenger"]["risk_at_upper_quantile"],
        ),
        "pictures": pictures(own, evidence.catalogue, project),
        "own_images": any(Path(str(p)).is_absolute() for p in evidence.catalogue["path"]),
        "problems": _problems(evidence.catalogue),
        "facts": _facts(findings),
        "example": example(findings),
    }


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
    loads = runs["load1_before"].dropna()
    started = sorted(runs["started_at"].dropna())
    facts = {
        "Applications": ", ".join(f"{a} version {n}" for a, n in versions.itertuples(index=False)),
        "Machines": ", ".join(sorted(runs["host_class"].unique())),
        "Measured": f"{started[0]} to {started[-1]}" if started else "never",
        "Load before a run": f"median {loads.median():.2f}" if len(loads) else "unknown",
        "Memory by": ", ".join(sorted(runs["memory_method"].unique())),
        "CPU time by": ", ".join(sorted(runs["cpu_method"].unique())),
        "Parameters": ", ".join(f"{k} = {v}" for k, v in sorted(challenger["params"].items())),
        "Training table": f"{counted(int(receipt['training']['runs']), 'run')}, SHA-256 "
        f"{receipt['training']['table_sha256']}",
        "Decision": f"{receipt['reason']}: {receipt['detail']}",
        "Test table opened": counted(findings.verdict.test_openings, "time"),
    }
    return {name: text or "none" for name, text in facts.items()}
