"""Predictions of concurrent requests in common calls of the model.

While the model answers, requests wait; what has come together until it is free again is its next
call. So a request that comes alone does not wait, and a hundred cost little more than a few.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.errors import VoxcastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from voxcast.serving.prediction_service import PredictionService

Rows = list[dict[str, Any]]

MAX_ROWS = 256  # of a common call; about 80 ms


@dataclass(frozen=True, eq=False)
class _Question:
    """Rows of one request, and where its answer is awaited."""

    served: PredictionService
    rows: Rows
    quantile: float
    explain: bool
    answer: asyncio.Future[Rows]

    @property
    def kind(self) -> tuple[int, float, bool]:
        """What questions of a common call share."""
        return id(self.served), self.quantile, self.explain

    def predict(self) -> Rows:
        """Ask the model for this request alone."""
        return self.served.predict(self.rows, self.quantile, explain=self.explain)


@dataclass
class Batches:
    """Collects the rows of concurrent requests.

    Attributes
    ----------
    observe : callable
        Gets the number of rows of each call.
    """

    observe: Callable[[int], None] = lambda rows: None
    _waiting: deque[_Question] = field(default_factory=deque)
    _task: asyncio.Task[None] | None = None
    _model_thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "predictions")
    )
    _bulk_thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "bulk"))

    async def predict(
        self, served: PredictionService, rows: Rows, quantile: float, *, explain: bool = False
    ) -> Rows:
        """Return one prediction for each row, in order.

        Many rows are predicted beside the rows of other requests, which do not wait for them.

        Raises
        ------
        ModelError
            If a row is refused; other requests are answered.
        """
        loop = asyncio.get_running_loop()
        question = _Question(served, rows, quantile, explain, loop.create_future())
        if len(rows) > MAX_ROWS:
            self.observe(len(rows))
            return await loop.run_in_executor(self._bulk_thread, question.predict)
        self._waiting.append(question)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_all())
        return await question.answer

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            questions = self._next_call()
            if questions:
                self.observe(sum(len(question.rows) for question in questions))
                answers = await loop.run_in_executor(self._model_thread, _answers, questions)
                for question, answer in zip(questions, answers, strict=True):
                    if question.answer.done():  # its client went away
                        continue
                    if isinstance(answer, Exception):
                        question.answer.set_exception(answer)
                    else:
                        question.answer.set_result(answer)

    def _next_call(self) -> list[_Question]:
        """Take the longest waiting question, and others of its kind; the rest stays in order."""
        chosen: list[_Question] = []
        others: deque[_Question] = deque()
        rows = 0
        for question in self._waiting:
            if question.answer.done():
                continue
            fits = not chosen or (
                question.kind == chosen[0].kind and rows + len(question.rows) <= MAX_ROWS
            )
            if fits:
                chosen.append(question)
                rows += len(question.rows)
            else:
                others.append(question)
        self._waiting = others
        return chosen

    def close(self) -> None:
        """End the threads."""
        self._model_thread.shutdown(wait=False, cancel_futures=True)
        self._bulk_thread.shutdown(wait=False, cancel_futures=True)


def _answers(questions: list[_Question]) -> list[Rows | Exception]:
    """Ask for all in one call; if one of them is refused, for each by itself."""
    if len(questions) > 1:
        first = questions[0]
        rows = [row for question in questions for row in question.rows]
        try:
            predictions = iter(first.served.predict(rows, first.quantile, explain=first.explain))
            return [[next(predictions) for _ in question.rows] for question in questions]
        except VoxcastError:
            pass
    answers: list[Rows | Exception] = []
    for question in questions:
        try:
            answers.append(question.predict())
        except Exception as error:  # an answer too; one that is no user's is logged there
            answers.append(error)
    return answers
