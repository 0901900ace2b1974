"""``GET /history``: runs on record against requests and predictions."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from voxcast.errors import TableError, VoxcastError
from voxcast.web.guards import served_model, service_router, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from voxcast.serving.bundle import Promotion
    from voxcast.web.model_switch import ServedModel

MAX_RUNS = 5000
SOURCES = ("data/history", "data/runs")
EVALUATED = Path("results/evaluate/predictions.csv")
# One computation at a time, so that threads of predictions are never taken by those who wait.
_THREAD = ThreadPoolExecutor(1, "history")

router = service_router()
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


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
            self._content = orjson.dumps(_overview(self.project, served), option=OPTIONS)
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
    response_model=dict[str, Any],
)  # fmt: skip
async def history(request: Request) -> Response:
    """Compare what runs requested, used and were predicted to use.

    ``runs`` are the newest 5,000, ``calibration`` is the share of subjects of a month below their
    bound. It is computed again when the history has changed, and has an `ETag`.
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
    from voxcast.analysis.job_drift import monthly_coverage
    from voxcast.analysis.runs_on_record import run_outlines

    promotions = {name: app.promotion for name, app in served.bundle.apps.items()}
    runs, evaluated = _runs(project), _evaluated(project, promotions)
    return {
        "runs_on_record": len(runs),
        "runs": run_outlines(runs.tail(MAX_RUNS), evaluated).to_dict("records"),
        "calibration": [
            {
                **vars(month),
                "share_within": month.below / month.subjects,
                "low": month.interval[0],
                "high": month.interval[1],
            }
            for month in monthly_coverage(runs, evaluated)
        ],
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
