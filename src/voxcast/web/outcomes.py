"""Recurring tasks of clients such as workflow engines: ``POST /outcomes``.

A client reports runs that have ended, and gets requests for the next ones. The model is not
asked; see `voxcast.allocation.requests.online`. The runs are kept in the project.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from voxcast.allocation.requests.online import OnlineSizer
from voxcast.records import Outcome
from voxcast.records import Request as Requested
from voxcast.web.guards import StrictBody, json_answer, service_router, settings_of

FOLDER = Path("data/online")
MAX_TASKS = 1000
MAX_RUNS = 20  # of a question: learning from one takes up to 30 ms, and others wait
LEAST_S, LEAST_BYTES = 60.0, 2**24  # Slurm counts minutes, and takes no memory for all of a node
# One at a time, in the order in which they came.
_THREAD = ThreadPoolExecutor(1, "outcomes")

router = service_router()

Name = Annotated[str, Field(min_length=1, max_length=200)]
Features = Annotated[
    dict[Name, Annotated[float, Field(ge=-1e18, le=1e18)]],
    Field(max_length=5, description="what is known before the run, such as `input_bytes`"),
]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Bytes = Annotated[float, Field(ge=0, le=1e15)]


class RecurringRun(StrictBody):
    """A run of a task that recurs."""

    task: Name
    features: Features = Field(default_factory=dict)


class EndedRun(RecurringRun):
    """A run that has ended, with its use; after a failure that is a lower bound of its need."""

    runtime_s: Seconds
    peak_rss_bytes: Bytes
    outcome: Outcome = "completed"


class NextRun(RecurringRun):
    """A run to make, and what would be requested for it otherwise."""

    walltime_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    memory_bytes: Annotated[float, Field(gt=0, le=1e15)] | None = None


class Outcomes(StrictBody):
    """Runs that have ended, and runs to make."""

    ended: list[EndedRun] = Field(default_factory=list, max_length=MAX_RUNS)
    next: list[NextRun] = Field(default_factory=list, max_length=MAX_RUNS)


class Requests(BaseModel):
    """Increasing requests: the first one, and the next after each failure by that resource."""

    walltimes_s: list[float]
    memories_bytes: list[int]


class OutcomesAnswer(BaseModel):
    """Requests of the runs that were asked about, in their order."""

    requests: list[Requests]


@router.post("/outcomes", response_model=OutcomesAnswer)
async def outcomes(request: Request, question: Outcomes) -> Response:
    """Learn from runs that have ended, then return requests for the next ones."""
    loop = asyncio.get_running_loop()
    project = settings_of(request).project
    state = request.app.state

    def answer() -> list[dict[str, Any]]:
        if state.sizers is None:  # read at the first request, in this thread
            state.sizers = _sizers(project)
        return _answer(state.sizers, question)

    try:
        return json_answer({"requests": await loop.run_in_executor(_THREAD, answer)})
    except OSError as error:
        detail = f"what was learned cannot be kept: {error.strerror}"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, detail) from None


def _sizers(project: Path | None) -> tuple[OnlineSizer, OnlineSizer]:
    """Return the sizers of time and memory; without a project nothing is kept on disk."""
    if project is None:
        return OnlineSizer(objective="time"), OnlineSizer(objective="memory")
    folder = project / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return (
        OnlineSizer(folder / "time.jsonl", objective="time"),
        OnlineSizer(folder / "memory.jsonl", objective="memory"),
    )


def _answer(sizers: tuple[OnlineSizer, OnlineSizer], question: Outcomes) -> list[dict[str, Any]]:
    times, memories = sizers
    names = {run.task for run in question.ended} | set(times.tasks)
    if len(names) > MAX_TASKS:
        detail = f"at most {MAX_TASKS} tasks are learned; give alike runs the same task"
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    for run in question.ended:
        for sizer in sizers:
            sizer.update(
                run.task, run.features, runtime_s=run.runtime_s,
                peak_rss_bytes=run.peak_rss_bytes, outcome=run.outcome,
            )  # fmt: skip
    answers = []
    for following in question.next:
        task, features, limit_s = following.task, following.features, following.walltime_s
        usual = None if limit_s is None else Requested(limit_s, 0)
        of_time = times.requests(task, features, usual)
        of_memory = memories.requests(task, features, following.memory_bytes)
        answers.append(
            {
                "walltimes_s": sorted({max(r.walltime_s, LEAST_S) for r in of_time}),
                "memories_bytes": sorted({max(r.memory_bytes, LEAST_BYTES) for r in of_memory}),
            }
        )
    return answers
