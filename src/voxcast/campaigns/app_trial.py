"""A trial of an application on one image: measured, its log searched for phases, not recorded."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.new import PhaseProposal, propose_phases
from voxcast.campaigns.recorder import log_tail, measure_app
from voxcast.campaigns.settings import Conditions
from voxcast.images.headers import read_header
from voxcast.records import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.records import App, Configuration, Profile

MAX_LOG_LINES = 200_000  # searched for phases


@dataclass(frozen=True)
class AppTrial:
    """What a trial showed.

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

    profile: Profile
    log_tail: str
    files: tuple[str, ...]
    proposal: PhaseProposal
    mvoxels: float

    @property
    def expected_s(self) -> dict[str, float]:
        """A first guess of times by size: half of one run depends on the image, half does not."""
        runtime_s = max(self.profile.runtime_s, 0.02)
        return {
            "expected_startup_s": _rounded(runtime_s / 2),
            "expected_s_per_mvoxel": _rounded(runtime_s / 2 / self.mvoxels),
        }


def try_app(app: App, image: Path, configuration: Configuration, time_limit_s: float) -> AppTrial:
    """Run ``app`` on ``image`` under the profiler, in a folder that is removed afterwards."""
    mvoxels = math.prod(read_header(image).shape) / 1e6
    folder = Path(tempfile.mkdtemp(prefix="voxcast-trial-"))
    try:
        (folder / "out").mkdir()
        cell = Cell(
            app=app.name, app_version="", parameters=app.parameters, volume_id="", subject="",
            configuration=configuration, scale="full_scale", repeat=0, host_class="",
        )  # fmt: skip
        proposals = []

        def proposed(lines: Sequence[str]) -> dict[str, str]:
            proposals.append(propose_phases(lines[:MAX_LOG_LINES]))
            return proposals[0].patterns

        profile = measure_app(
            app,
            image.absolute(),
            folder,
            cell,
            Conditions(time_limit_s),
            propose_phases=proposed,
        )
        written = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
        return AppTrial(
            profile=profile,
            log_tail=log_tail(folder),
            files=tuple(path.relative_to(folder / "out").as_posix() for path in written),
            proposal=proposals[0] if proposals else PhaseProposal(),
            mvoxels=mvoxels,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rounded(seconds: float) -> float:
    """Round to two significant digits."""
    return float(f"{seconds:.2g}")
