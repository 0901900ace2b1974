"""Many rows go in several requests; answers keep the order, and refusals the number of the row."""

import pytest

from champions import HEADER_ROW
from misbehaving_server import answers, misbehaving_server
from voxcast import Client
from voxcast.errors import RequestError
from voxcast.serving.client import PART_BYTES, PART_EXPLAINED, PART_ROWS, parts
from voxcast.serving.signature import OUTPUT_TYPES

values = {"string": "", "double": 1.0, "long": 1, "boolean": True}


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
    made = list(parts(rows, PART_EXPLAINED if explain else PART_ROWS))
    assert [len(part) for part in made] == sizes
    assert [row["n"] for part in made for row in part] == list(range(count))


def test_a_refused_row_has_its_number_among_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voxcast.serving.client.PART_ROWS", 1)
    row = {name: values[kind] for name, kind in OUTPUT_TYPES.items()}
    refusal = answers(400, {"message": "row 0: dtype: is missing"})
    expected = pytest.raises(RequestError, match="row 1: dtype: is missing")
    with misbehaving_server(answers(200, {"predictions": [row]}), refusal) as server, expected:
        Client(server.url).predict_rows([HEADER_ROW, {}])
