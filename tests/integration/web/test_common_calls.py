"""Concurrent requests share calls of the model, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from champions import HEADER_ROW
from voxcast.errors import ModelError
from voxcast.serving.prediction_service import PredictionService
from voxcast.web.batches import MAX_ROWS, Batches

ROW = {**HEADER_ROW, "app": "segment", "cpus": 1.0}
BAD = {**ROW, "shape_i": -1.0}


@pytest.fixture(scope="module")
def served(champion_project: Path) -> PredictionService:
    return PredictionService.of_project(champion_project)


def row(number: int) -> dict[str, Any]:
    return {**ROW, "file_size_bytes": 3e5 + 1e5 * number}


def ask(
    served: PredictionService, questions: list[tuple[list[dict[str, Any]], float]]
) -> tuple[list[Any], list[int]]:
    """Ask all at once; return the answers, and the rows of each call of the model."""
    calls: list[int] = []

    async def all_at_once() -> list[Any]:
        batches = Batches(calls.append)
        try:
            return await asyncio.gather(
                *(batches.predict(served, rows, quantile) for rows, quantile in questions),
                return_exceptions=True,
            )
        finally:
            batches.close()

    return asyncio.run(all_at_once()), calls


def test_requests_that_come_together_are_few_calls(served: PredictionService) -> None:
    questions = [([row(n)], 0.95) for n in range(100)]
    answers, calls = ask(served, questions)
    assert sum(calls) == 100
    assert len(calls) <= 3
    for (rows, quantile), answer in zip(questions, answers, strict=True):
        (expected,), (prediction,) = served.predict(rows, quantile), answer
        quantiles = {k: v for k, v in expected.items() if isinstance(v, float)}
        assert {k: prediction[k] for k in quantiles} == pytest.approx(quantiles, rel=1e-12)


def test_a_bad_row_fails_its_own_request_alone(served: PredictionService) -> None:
    questions = [([row(n)], 0.95) for n in range(10)]
    questions[4] = ([row(0), BAD], 0.95)
    answers, _ = ask(served, questions)
    assert isinstance(answers[4], ModelError)
    assert "row 1: shape_i" in str(answers[4])
    assert [len(a) for n, a in enumerate(answers) if n != 4] == [1] * 9


def test_questions_of_another_kind_have_calls_of_their_own(served: PredictionService) -> None:
    questions = [([row(n)], (0.9, 0.95)[n % 2]) for n in range(20)]
    answers, calls = ask(served, questions)
    assert sum(calls) == 20
    upper = [answer[0]["cpu_s_upper"] for answer in answers]
    expected = [served.predict(*question)[0]["cpu_s_upper"] for question in questions]
    assert upper == pytest.approx(expected, rel=1e-12)


def test_many_rows_do_not_keep_others_waiting(served: PredictionService) -> None:
    many = [row(n) for n in range(4 * MAX_ROWS)]
    answers, calls = ask(served, [(many, 0.95), ([row(1)], 0.95)])
    assert len(answers[0]) == len(many)
    assert sorted(calls) == [1, len(many)]


def test_a_client_that_goes_away_does_not_stop_the_others(served: PredictionService) -> None:
    async def ask_and_leave() -> list[dict[str, Any]]:
        batches = Batches()
        try:
            first = asyncio.create_task(batches.predict(served, [row(1)], 0.95))
            gone = asyncio.create_task(batches.predict(served, [row(2)], 0.95))
            last = asyncio.create_task(batches.predict(served, [row(3)], 0.95))
            await asyncio.sleep(0)
            gone.cancel()
            return [*await first, *await last]
        finally:
            batches.close()

    assert len(asyncio.run(ask_and_leave())) == 2
