"""Many rows go in several requests; answers keep the order, and refusals the number of the row."""

from pathlib import Path
from typing import Any

import pytest

from champions import HEADER_ROW
from voxcast.errors import RequestError
from voxcast.serving.client import (
    PART_BYTES,
    PART_EXPLAINED,
    PART_ROWS,
    predictions_in_parts,
)
from voxcast.serving.prediction_service import PredictionService


@pytest.mark.parametrize(
    ("count", "letters", "explain", "sizes"),
    [
        (0, 0, False, [0]),  # which the server refuses
        (PART_ROWS, 0, False, [PART_ROWS]),
        (PART_ROWS + 1, 0, False, [PART_ROWS, 1]),
        (2 * PART_EXPLAINED + 1, 0, True, [PART_EXPLAINED, PART_EXPLAINED, 1]),
        (5, PART_BYTES // 2 - 100, False, [2, 2, 1]),
        (3, 2 * PART_BYTES, False, [1, 1, 1]),  # each of which the server may refuse
    ],
)
def test_parts_stay_within_what_a_server_receives(
    count: int, letters: int, explain: bool, sizes: list[int]
) -> None:
    rows = [{"n": n, "volume": letters * "A"} for n in range(count)]
    parts: list[int] = []

    def numbers(part: list[dict[str, Any]]) -> list[dict[str, Any]]:
        parts.append(len(part))
        return [{"n": row["n"]} for row in part]

    answers = predictions_in_parts(rows, numbers, explain=explain)
    assert parts == sizes
    assert [answer["n"] for answer in answers] == list(range(count))


def test_a_refused_row_has_its_number_among_all_rows(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    champion = PredictionService.of_project(project).champion()
    rows = [dict(HEADER_ROW) for _ in range(PART_EXPLAINED + 10)]
    rows[PART_EXPLAINED + 7] |= {"dtype": "elephant"}
    with pytest.raises(RequestError, match=f"row {PART_EXPLAINED + 7}: dtype: unknown type"):
        predictions_in_parts(rows, lambda part: champion.predict(part, 0.95), explain=True)
