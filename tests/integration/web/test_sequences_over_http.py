"""POST /requests: against `voxcast requests` on the same image, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from voxcast.allocation.requests.strategies import STRATEGIES


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({}, ()),
        ({"alpha": 2, "beta": 1, "gamma": 0.5, "configuration": {"cpus": 2}},
         ("--cost", "2,1,0.5", "--cpus", "2")),
        ({"checkpoint_s": 0.1, "restart_s": 0.2},
         ("--checkpoint", "0.1,0.2")),
        ({"strategy": "equal_time"}, ("--strategy", "equal_time")),
    ],
)  # fmt: skip
def test_the_sequences_are_those_of_the_verb(
    site_service: TestClient, image_row: dict[str, Any], verb: Callable[..., Any],
    fields: dict[str, Any], arguments: tuple[str, ...],
) -> None:  # fmt: skip
    expected = {row["strategy"]: row for row in verb("requests", *arguments)}
    answer = site_service.post("/requests", json={"row": image_row, **fields})
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert [s["strategy"] for s in content["sequences"]] == sorted(
        expected, key=lambda name: expected[name]["expected_cost"]
    )
    for sequence in content["sequences"]:
        wanted = expected[sequence["strategy"]]
        assert [_numbers(r) for r in sequence["sequence"]] == [
            pytest.approx(_numbers(r), rel=1e-9) for r in wanted["sequence"]
        ]
        for name in ("expected_cost", "normalised_cost"):
            assert sequence[name] == pytest.approx(wanted[name], rel=1e-9)
        assert sequence["meaning"] == STRATEGIES[sequence["strategy"]].meaning
        # Of the verb each sequence has the notes of the prediction, too.
        of_prediction = [note for note in content["notes"] if not note.startswith("skipped")]
        assert sequence["notes"] + of_prediction == wanted["notes"]
    left_out = [name for name in STRATEGIES if name not in expected]
    if "strategy" not in fields:
        assert content["need_checkpoints"] == left_out
    predicted = site_service.post("/predict", json={"rows": [image_row]}).json()["predictions"]
    assert content["host"] == predicted[0]["host"]
    levels, runtimes = zip(*content["knots"], strict=True)
    assert 0.5 in levels
    assert list(levels) == sorted(levels)
    assert list(runtimes) == sorted(runtimes)


def _numbers(request: float | dict[str, Any]) -> list[float]:
    return [float(n) for n in request.values()] if isinstance(request, dict) else [request]


def test_an_image_unlike_all_that_was_measured_is_answered_with_a_warning(
    site_service: TestClient, image_row: dict[str, Any]
) -> None:
    parameters = {"iterations": 60}
    answer = site_service.post("/requests", json={"row": image_row, "parameters": parameters})
    assert answer.json()["notes"][-1] == "so the normalised cost is an estimate only"
    assert answer.json()["notes"][0].startswith("out of range: ")


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"alpha": 0}, 422, "alpha"),
        ({"gamma": -1}, 422, "gamma"),
        ({"checkpoint_s": 1}, 422, "must be given together"),
        ({"strategy": "mixed_ckpt"}, 422, "needs checkpoint_s and restart_s"),
        ({"strategy": "guess"}, 422, "strategy: unknown; choose from all, brute_force"),
        ({"points": 10_000}, 422, "points"),
        ({"law": "lognormal(3,0.5)"}, 422, "law"),
        ({"alpha": 1e308, "gamma": 1e308}, 400, "out of the range of a double"),
        ({"configuration": {"device": "tpu"}}, 400, "unknown device"),
    ],
)
def test_a_wrong_question_is_refused(
    site_service: TestClient, image_row: dict[str, Any], fields: dict[str, Any], status: int,
    message: str,
) -> None:  # fmt: skip
    answer = site_service.post("/requests", json={"row": image_row, **fields})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["detail"]
