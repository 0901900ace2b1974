"""The encoder, and the range of its training rows: columns, stand-ins, ranges."""

import json
from pathlib import Path

import numpy as np
import pytest

from voxcast.models.families.encoder import Encoder
from voxcast.models.out_of_range import TrainingRange

# Matrices recorded before scikit-learn's transformers came in.
RECORDED = json.loads(Path(__file__).with_name("encoder_matrices.json").read_text())

ROWS = [
    {"app": "a", "device": "cpu", "header.x": 1.0, "header.same": 4.0, "content.y": 2.0},
    {"app": "b", "device": "cpu", "header.x": 3.0, "header.same": 4.0, "content.y": 5.0},
]


def test_encoder_drops_constants_and_optionally_content() -> None:
    full = Encoder.fit(ROWS, content=True)
    assert full.columns == ["content.y", "header.x", "app=a", "app=b", "device=cpu"]
    assert Encoder.fit(ROWS, content=False).numbers == ("header.x",)
    assert Encoder.fit(ROWS, content=True, only=("none.",)).numbers == ()


def test_rows_out_of_range_are_flagged() -> None:
    rows = [
        {"app": "a", "header.megavoxels": 1.0, "parameter.n": 5.0, "allocation.log2_cpus": 0.0},
        {"app": "a", "header.megavoxels": 4.0, "parameter.n": 5.0, "allocation.log2_cpus": 1.0},
    ]
    covered = TrainingRange.fit(rows, content=False)
    assert covered.outside(rows) == [()] * len(rows)
    assert covered.outside([{**rows[0], "header.megavoxels": 4.9}]) == [()]
    assert covered.outside([{**rows[0], "header.megavoxels": 5.1}]) == [("header.megavoxels",)]
    assert covered.outside([{**rows[0], "parameter.n": 6.0}]) == [("parameter.n",)]
    other = {**rows[0], "allocation.log2_cpus": 6.0, "app": "b"}
    assert covered.outside([other]) == [("allocation.log2_cpus", "app")]


def test_encoder_imputes_missing_and_unseen_values() -> None:
    encoder = Encoder.fit(ROWS, content=True)
    matrix = encoder.transform([{"app": "new", "device": "cpu", "header.x": float("nan")}])
    assert matrix.tolist() == [[3.5, 2.0, 0.0, 0.0, 1.0]]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_matrices_are_those_of_the_first_encoder(case: dict, tmp_path: Path) -> None:
    encoder = Encoder.fit(case["train"], content=case["content"], only=case["only"])
    encoder.save(tmp_path)
    queries = [{k: np.inf if v == "inf" else v for k, v in row.items()} for row in case["queries"]]
    for each in (encoder, Encoder.load(tmp_path)):
        assert each.columns == case["columns"]
        assert each.transform(case["train"]).tolist() == case["train_matrix"]
        assert each.transform(queries).tolist() == case["matrix"]
    covered = TrainingRange.fit(case["train"], content=case["content"])
    for range_ in (covered, TrainingRange.from_json(json.loads(json.dumps(covered.to_json())))):
        assert [list(names) for names in range_.outside(queries)] == case["out_of_range"]


def test_of_a_heavy_tailed_column_only_the_logarithm_is_used_for_logarithms() -> None:
    sizes = [0.0] * 30 + [10.0**n for n in range(10)]
    rows = [
        {"column.size": size, "column.log size": float(np.arcsinh(size)), "column.cpus": n % 4}
        for n, size in enumerate(sizes)
    ]
    assert Encoder.fit(rows, content=False).numbers == (
        "column.cpus", "column.log size", "column.size",
    )  # fmt: skip
    encoder = Encoder.fit(rows, content=False, on_logs=True)
    assert encoder.numbers == ("column.cpus", "column.log size")
    covered = TrainingRange.fit(rows, content=False)
    assert covered.outside([{**rows[-1], "column.size": 1e10}]) == [("column.size",)]
