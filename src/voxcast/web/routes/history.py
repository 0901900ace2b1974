"""``GET /history``: runs on record against requests and predictions, and the champion."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from voxcast.errors import TableError, VoxcastError
from voxcast.web.question_schema import problems
from voxcast.web.questions import settings_of
from voxcast.web.served_model import served_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.serving.served_app import Promotion
    from voxcast.web.served_model import ServedModel

MAX_RUNS = 5000
SOURCES = ("data/history", "data/runs")
EVALUATED = Path("results/evaluate/predictions.csv")
# One computation at a time, so that threads of predictions are never taken by those who wait.
_THREAD = ThreadPoolExecutor(1, "history")

router = APIRouter()


class RunAnswer(BaseModel):
    """A run; null is not known."""

    app: str
    source: str = Field(description="`measured` by a campaign, `submit`, or accounting")
    outcome: str
    device: str
    cpus: int
    gpus: int
    started_at: str
    requested_s: float | None = Field(description="null for a campaign, which requests nothing")
    requested_bytes: float | None
    used_s: float | None
    used_bytes: float | None
    predicted_by: str = Field(description="`submission`, `evaluation`, or empty")
    predicted_median_s: float | None
    predicted_upper_s: float | None
    predicted_median_bytes: float | None
    predicted_upper_bytes: float | None
    confidence: float | None = Field(description="probability of the upper bounds")


class CoverageAnswer(BaseModel):
    """Subjects of a month that stayed below their bound."""

    month: str
    app: str
    target: str
    basis: str = Field(description="`submission`: jobs; `evaluation`: unseen subjects")
    stated: float = Field(description="probability of the bound")
    below: int
    subjects: int
    runs: int
    share_within: float
    low: float = Field(description="of the exact 95 % interval")
    high: float


class AllocationAnswer(BaseModel):
    """Medians of an application's runs in one allocation, on one kind of machine."""

    app: str
    host_class: str
    device: str
    cpus: int
    gpus: int
    runs: int
    subjects: int
    runtime_s: float | None
    cpu_s: float | None
    peak_rss_bytes: float | None
    ratio: float | None = Field(description="of its runtime to that in the smallest allocation")
    ratio_low: float | None = Field(description="of the 95 % interval over subjects")
    ratio_high: float | None


class VersionAnswer(BaseModel):
    """A version of the registered model."""

    version: str
    apps: dict[str, dict[str, Any] | None]


class HistoryAnswer(BaseModel):
    """The runs on record."""

    runs_on_record: int
    runs: list[RunAnswer] = Field(description=f"the newest {MAX_RUNS:,}, in order of start")
    calibration: list[CoverageAnswer]
    configurations: list[AllocationAnswer]
    champion: VersionAnswer


@dataclass
class HistoryView:
    """The history of a project as JSON, computed again when it has changed."""

    project: Path
    _state: str = ""
    _content: bytes = b""

    def content(self, served: ServedModel) -> tuple[bytes, str]:
        """Return the answer, and a name of the state that it is of; for one thread at a time."""
        state = self._state_of(served.version)
        if state != self._state:
            content = _overview(self.project, served)
            self._content = HistoryAnswer(**content).model_dump_json().encode()
            self._state = state
        return self._content, self._state

    def _state_of(self, champion: str) -> str:
        from voxcast.runs.series import RUNS

        batches, measured = (self.project / source for source in SOURCES)
        paths = [
            self.project / EVALUATED,
            *batches.glob(f"*/{RUNS}"),
            *batches.glob(f"*/*/{RUNS}"),
            *measured.glob(f"*/{RUNS}"),
        ]
        statuses = {str(path): path.stat() for path in paths if path.exists()}
        stamps = sorted((name, s.st_mtime_ns, s.st_size) for name, s in statuses.items())
        return sha256(repr((champion, stamps)).encode()).hexdigest()[:16]


@functools.cache
def _view_of(project: Path) -> HistoryView:
    return HistoryView(project)


@router.get(
    "/history", summary="Runs on record, and how predictions held",
    responses={200: {"model": HistoryAnswer}, **problems(401, 404, 429, 503)},
)  # fmt: skip
async def history(request: Request) -> Response:
    """Compare what runs requested, used and were predicted to use.

    It is computed again when the history has changed, and has an `ETag`.
    """
    settings, served = settings_of(request), served_model(request)
    if settings.project is None:
        raise HTTPException(404, "the service was started without a project, which has the runs")
    view = _view_of(settings.project)
    loop = asyncio.get_running_loop()
    content, state = await loop.run_in_executor(_THREAD, view.content, served)
    headers = {"ETag": f'"{state}"', "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


def _overview(project: Path, served: ServedModel) -> dict[str, Any]:
    from voxcast.analysis.measured_allocations import measured_allocations
    from voxcast.analysis.monthly_coverage import monthly_coverage
    from voxcast.analysis.run_outlines import run_outlines

    promotions = {name: app.promotion for name, app in served.bundle.apps.items()}
    runs, evaluated = _runs(project), _evaluated(project, promotions)
    coverage = []
    for month in monthly_coverage(runs, evaluated):
        low, high = month.interval
        share = {"share_within": month.below / month.subjects, "low": low, "high": high}
        coverage.append(dataclasses.asdict(month) | share)
    allocations = []
    for allocation in measured_allocations(runs):
        ratio = allocation.ratio
        ends = (None, None, None) if ratio is None else (ratio.value, ratio.low, ratio.high)
        named = dict(zip(("ratio", "ratio_low", "ratio_high"), ends, strict=True))
        allocations.append(_without_nan({**vars(allocation), **named}))
    return {
        "runs_on_record": len(runs),
        "runs": [
            _without_nan({str(name): value for name, value in run.items()})
            for run in run_outlines(runs.tail(MAX_RUNS), evaluated).to_dict("records")
        ],
        "calibration": coverage,
        "configurations": allocations,
        "champion": {
            "version": served.version,
            "apps": {name: promotion.summary() for name, promotion in promotions.items()},
        },
    }


def _runs(project: Path) -> pd.DataFrame:
    """Return all runs on record; none where there are none yet."""
    from voxcast.runs.store import open_history
    from voxcast.runs.table import frame_of, in_schema

    frames = []
    for source in SOURCES:
        try:
            frames.append(in_schema(open_history(project / source).runs))
        except TableError:  # missing, or still without a run
            continue
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return frame_of([])
    import pandas as pd

    runs = pd.concat(frames).drop_duplicates("cell_key")
    return runs.sort_values(["started_at", "cell_key"], ignore_index=True)


def _evaluated(project: Path, promotions: Mapping[str, Promotion]) -> pd.DataFrame | None:
    """Return the predictions of the last evaluation, by the families that are champions."""
    import pandas as pd

    try:
        predictions = pd.read_csv(project / EVALUATED)
        family = {name: promotion.family for name, promotion in promotions.items()}
        stated = {name: promotion.upper_quantile for name, promotion in promotions.items()}
        winners = predictions[predictions["family"] == predictions["app"].map(family)]
        return winners.assign(stated=winners["app"].map(stated))
    except (OSError, ValueError, KeyError, VoxcastError):  # of another release, or none yet
        return None


def _without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
