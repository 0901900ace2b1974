"""The summary of ten lines at the end of `make demo`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.report.narrative import Narrative

_BIN = ".venv/bin/"


def summary(narrative: Narrative, report: str) -> str:
    """Return ten lines: runs, noise floor, best model, its errors and bounds, next commands.

    Parameters
    ----------
    narrative : Narrative
        Results of the pass.
    report : str
        Path of the page, relative to the current folder.
    """
    lines = [
        ("measured", narrative.measured()),
        ("noise floor", narrative.floor()),
        ("CPUs", narrative.cpu_scaling()),
        ("champion", narrative.champion()),
        ("error by CV", narrative.cross_validated()),
        ("on unseen", narrative.tested()),
        ("bounds", narrative.calibration()),
        ("report", report),
        ("next", f"{_BIN}voxcast predict {example(narrative)}"),
        ("or", f"{_BIN}mlflow ui to compare runs; make serve to predict over HTTP; make help"),
    ]
    return "".join(f"{name:<12} {' '.join(text.split())}\n" for name, text in lines)


def example(narrative: Narrative) -> str:
    """Return the path of a usable volume, quoted for a shell."""
    usable = narrative.inputs.catalogue.query("problem.isna()")
    return shlex.quote(str(usable["path"].iloc[0])) if len(usable) else "IMAGE.nii.gz"
