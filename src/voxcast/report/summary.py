"""The ten lines that `make demo` ends with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.report.narrative import Findings

_BIN = ".venv/bin/"


def summary(findings: Findings, report: str) -> str:
    """Return ten lines: what was measured, who won by how much, where to look, what to do next.

    Parameters
    ----------
    findings : Findings
        What the evidence says.
    report : str
        Path of the page as the reader should open it.
    """
    lines = [
        ("measured", findings.measured()),
        ("noise floor", findings.floor()),
        ("CPUs", findings.compared()),
        ("winner", findings.won()),
        ("error by CV", findings.cross_validated()),
        ("on unseen", findings.tested()),
        ("bounds", findings.trust()),
        ("report", report),
        ("next", f"{_BIN}voxcast predict {example(findings)}"),
        ("or", f"{_BIN}mlflow ui, to compare runs; make serve, to answer over HTTP; make help"),
    ]
    return "".join(f"{name:<12} {' '.join(text.split())}\n" for name, text in lines)


def example(findings: Findings) -> str:
    """Return the path of a volume to predict for, as a shell reads it."""
    good = findings.evidence.catalogue.query("problem.isna()")
    return shlex.quote(str(good["path"].iloc[0])) if len(good) else "IMAGE.nii.gz"
