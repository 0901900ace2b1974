"""The summary of about ten lines at the end of `make demo`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.report.inputs import ReportInputs
    from voxcast.report.narrative import Narrative

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
    if before := narrative.predicted_before():
        lines.insert(3, ("beforehand", before))
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
