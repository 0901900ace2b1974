"""The OpenAPI document describes what is asked and answered."""

from fastapi.testclient import TestClient


def test_a_row_is_described_by_its_columns(service: TestClient) -> None:
    document = service.get("/openapi.json").json()
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]
    row = body["application/json"]["schema"]["properties"]["row"]["anyOf"][0]
    assert {"shape_i", "dtype", "foreground_voxels", "host", "volume"} <= set(row["properties"])
    assert "shape_i" in row["required"]
    assert body["multipart/form-data"]["schema"]["required"] == ["file"]
