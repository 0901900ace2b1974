"""POST /predict, with a request row."""

from fastapi.testclient import TestClient

from champions import HEADER_ROW


def test_each_measured_allocation_is_predicted(service: TestClient) -> None:
    answer = service.post("/predict", json={"row": HEADER_ROW, "app": "segment"})
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert content["model_version"] == "1"
    assert [row["cpus"] for row in content["predictions"]] == [1, 2]
    assert all(row["runtime_s_lower"] < row["runtime_s_upper"] for row in content["predictions"])


def test_a_wrong_question_is_refused_with_its_reason(service: TestClient) -> None:
    answer = service.post("/predict", json={"row": HEADER_ROW, "app": "nothing"})
    assert answer.status_code == 400
    assert "unknown application" in answer.json()["detail"]
    answer = service.post("/predict", json={"row": HEADER_ROW, "apps": "segment"})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("apps: ")
