"""What the description of an application lacks, each with what follows from it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.campaigns.app_trial import AppTrial
    from voxcast.records import App, Configuration

UNKNOWN_VERSION = "1"  # of an application whose tool was not asked


def runnable(app: App) -> bool:
    """Tell whether the program of an application is found, or would be in a container."""
    return bool(app.module or app.container) or shutil.which(app.argv[0]) is not None


def gaps_of(
    app: App, trial: AppTrial | None = None, configuration: Configuration | None = None
) -> list[str]:
    """Return what is missing, as texts that begin with what to give.

    Parameters
    ----------
    trial : AppTrial, optional
        A trial of the application, if there was one.
    configuration : Configuration, optional
        Where it is to run.
    """
    if app.module is not None:
        return []
    gaps = []
    text = " ".join(app.argv)
    if "{threads}" not in text:
        gaps.append(
            "{cpus} in the command: it is pinned to the CPUs of a run, and not told of them"
        )
    if "{out}" not in text:
        gaps.append("{out} in the command: its results are not in the folder of the run")
    if app.version == UNKNOWN_VERSION and not app.container:
        of_file = "; the hash of its file stands for it" if app.files else ""
        gaps.append(f"--version-command: the version of the tool is not known{of_file}")
    if not runnable(app):
        gaps.append(f"{app.argv[0]}: it is not on PATH")
    if configuration is not None and app.container and configuration.container_engine == "none":
        gaps.append(f"container_engine in conf/device/{configuration.device}.yaml: none is chosen")
    if trial is None:
        return gaps
    if trial.profile.outcome == "timeout":
        gaps.append("a longer --time-limit: the trial was stopped, so its time is not known")
    elif not trial.files:
        gaps.append("results: the trial wrote no file below {out}")
    if not trial.profile.phases:
        gaps.append("phases: no line of its output shows them, so the run is one phase")
    return gaps
