"""A trial of an application on one image, and the gaps in the application's description."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from voxcast.apps.checks import check_program
from voxcast.apps.new import PhaseProposal, propose_phases
from voxcast.errors import RunError
from voxcast.images.headers import read_header
from voxcast.measure.record import log_tail, measure_app
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Configuration, Phase, Run

MAX_LOG_LINES = 200_000  # searched for phases
UNKNOWN_VERSION = "1"  # of an application whose tool has no version command
# By urgency: nothing can be measured; measurements may be wrong; less is known than could be.
STOPS, DOUBTFUL, COSTS = "stops you", "check", "costs you"


@dataclass(frozen=True)
class AppTrial:
    """The result of a trial.

    Attributes
    ----------
    log_tail : str
        End of its output.
    files : tuple of str
        Files that it wrote, relative to its folder of results.
    proposal : PhaseProposal
        Phases that its output shows, if the application names none itself.
    mvoxels : float
        Millions of voxels of the image.
    """

    run: Run
    phases: tuple[Phase, ...]
    log_tail: str
    files: tuple[str, ...]
    proposal: PhaseProposal
    mvoxels: float

    @property
    def expected_s(self) -> dict[str, float]:
        """A first guess of times by size: half of one run depends on the image, half does not."""
        runtime_s = max(self.run.runtime_s or 0.0, 0.02)
        return {
            "expected_startup_s": float(f"{runtime_s / 2:.2g}"),
            "expected_s_per_mvoxel": float(f"{runtime_s / 2 / self.mvoxels:.2g}"),
        }


def try_app(app: App, image: Path, configuration: Configuration, time_limit_s: float) -> AppTrial:
    """Run ``app`` on ``image`` under the profiler, in a folder that is removed afterwards."""
    mvoxels = math.prod(read_header(image).shape) / 1e6
    folder = Path(tempfile.mkdtemp(prefix="voxcast-trial-"))
    try:
        (folder / "out").mkdir()
        cell = Cell(app.name, "", app.parameters, "", "", configuration, "full_scale", 0, "")
        proposals = []

        def proposed(lines: Sequence[str]) -> dict[str, str]:
            proposals.append(propose_phases(lines[:MAX_LOG_LINES]))
            return proposals[0].patterns

        run, phases = measure_app(
            app, image.absolute(), folder, cell, Conditions(time_limit_s), propose_phases=proposed
        )
        written = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
        return AppTrial(
            run=run,
            phases=phases,
            log_tail=log_tail(folder),
            files=tuple(path.relative_to(folder / "out").as_posix() for path in written),
            proposal=proposals[0] if proposals else PhaseProposal(),
            mvoxels=mvoxels,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Gap:
    """Something that is missing; `urgency` is one of `STOPS`, `DOUBTFUL` and `COSTS`."""

    urgency: str
    text: str


def gaps_of(
    app: App, trial: AppTrial | None = None, configuration: Configuration | None = None
) -> list[Gap]:
    """Return the gaps in the description of ``app``, the most urgent first.

    Parameters
    ----------
    trial : AppTrial, optional
        A trial of the application, if there was one.
    configuration : Configuration, optional
        Where it is to run.
    """
    if app.module is not None:
        return []
    gaps, text = [], " ".join(app.argv)
    if not app.container:
        try:
            check_program(app.argv[0])
        except RunError as error:
            gaps.append(Gap(STOPS, str(error)))
    elif configuration is not None and configuration.container_engine == "none":
        where = f"container_engine in conf/device/{configuration.device}.yaml"
        gaps.append(Gap(STOPS, f"{where}: none is chosen"))
    if trial is not None:
        if trial.run.outcome == "timeout":
            stopped = "the trial was stopped, so its time is not known: give a longer --time-limit"
            gaps.append(Gap(DOUBTFUL, stopped))
        elif not trial.files and "{out}" in text:
            unwritten = (
                "it ended with exit status 0 and wrote no file below {out}: if it failed, "
                "failures would be learned as good runs; a failure needs another exit status"
            )
            gaps.append(Gap(DOUBTFUL, unwritten))
        if not trial.phases:
            one_phase = (
                "no line of its output shows phases (START name, name took 2.5 s, messages behind "
                "a time), so a run is one phase"
            )
            gaps.append(Gap(COSTS, one_phase))
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
    return sorted(gaps, key=lambda gap: (STOPS, DOUBTFUL, COSTS).index(gap.urgency))
