"""What the description of an application lacks, each with what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.apps.checks import check_program
from voxcast.errors import RunError

if TYPE_CHECKING:
    from voxcast.campaigns.app_trial import AppTrial
    from voxcast.records import App, Configuration

UNKNOWN_VERSION = "1"  # of an application whose tool was not asked
# By urgency: nothing can be measured; what is measured may be wrong; less is known than could be.
STOPS, DOUBTFUL, COSTS = "stops you", "check", "costs you"


@dataclass(frozen=True)
class Gap:
    """Something that is missing; `urgency` is one of `STOPS`, `DOUBTFUL` and `COSTS`."""

    urgency: str
    text: str


def gaps_of(
    app: App, trial: AppTrial | None = None, configuration: Configuration | None = None
) -> list[Gap]:
    """Return what is missing, the most urgent first.

    Parameters
    ----------
    trial : AppTrial, optional
        A trial of the application, if there was one.
    configuration : Configuration, optional
        Where it is to run.
    """
    if app.module is not None:
        return []
    gaps = [*_stops(app, configuration), *_of_trial(app, trial), *_of_command(app)]
    return sorted(gaps, key=lambda gap: (STOPS, DOUBTFUL, COSTS).index(gap.urgency))


def _stops(app: App, configuration: Configuration | None) -> list[Gap]:
    gaps = []
    if not app.container:
        try:
            check_program(app.argv[0])
        except RunError as error:
            gaps.append(Gap(STOPS, str(error)))
    if configuration is not None and app.container and configuration.container_engine == "none":
        where = f"container_engine in conf/device/{configuration.device}.yaml"
        gaps.append(Gap(STOPS, f"{where}: none is chosen"))
    return gaps


def _of_trial(app: App, trial: AppTrial | None) -> list[Gap]:
    if trial is None:
        return []
    gaps = []
    if trial.profile.outcome == "timeout":
        text = "the trial was stopped, so its time is not known: give a longer --time-limit"
        gaps.append(Gap(DOUBTFUL, text))
    elif not trial.files and "{out}" in " ".join(app.argv):
        text = (
            "it ended with exit status 0 and wrote no file below {out}: if it failed, failures "
            "would be learned as good runs; a failure needs another exit status"
        )
        gaps.append(Gap(DOUBTFUL, text))
    if not trial.profile.phases:
        text = (
            "no line of its output shows phases (START name, name took 2.5 s, messages behind a "
            "time), so a run is one phase"
        )
        gaps.append(Gap(COSTS, text))
    return gaps


def _of_command(app: App) -> list[Gap]:
    gaps, text = [], " ".join(app.argv)
    if "{out}" not in text:
        without = "{out} is not in the command: nobody can see whether a run wrote its results"
        gaps.append(Gap(DOUBTFUL, without))
    if "{threads}" not in text:
        without = (
            "{cpus} is not in the command: it is pinned to the CPUs of a run, not told of them"
        )
        gaps.append(Gap(COSTS, without))
    if app.version == UNKNOWN_VERSION and not app.container:
        of_file = ", so the hash of its file stands for it" if app.files else ""
        unknown = f"the version of the tool is not known{of_file}: give --version-command"
        gaps.append(Gap(COSTS, unknown))
    return gaps
