"""The encoder, and the range of its training rows: columns, stand-ins, ranges."""

import json
from pathlib import Path

import numpy as np
import pytest

from voxcast.errors import ModelError
from voxcast.models.families.encoder import MAXIMUM_ENCODED, Encoder
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.out_of_range import TrainingRange

# Matrices recorded before scikit-learn's transformers came in.
RECORDED = json.loads(Path(__file__).with_name("encoder_matrices.json").read_text())

ROWS = [
    {"app": "a", "device": "cpu", "header.x": 1.0, "header.same": 4.0, "content.y": 2.0},
    {"app": "b", "device": "cpu", "header.x": 3.0, "header.same": 4.0, "content.y": 5.0},
]


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


LEVELS, ROWS = 80, 1200


def drawn(seed: int = 0, noise: float = 0.1) -> tuple[list[dict], np.ndarray, np.ndarray]:
    """Return rows, logarithms of a target, and the effect of each row's level."""
    rng = np.random.default_rng(seed)
    effects, level = rng.normal(0, 1, LEVELS), rng.integers(0, LEVELS, ROWS)
    # Rows of a level are of similar sizes: the mean of a level is not its effect.
    size = rng.normal(0, 1, LEVELS)[level] + rng.normal(0, 1, ROWS)
    logs = 2 * size + effects[level] + rng.normal(0, noise, ROWS)
    rows = [
        {"column.tool": f"t{n}", "column.size": float(x)} for n, x in zip(level, size, strict=True)
    ]
    return rows, logs[:, None], effects[level]


@pytest.mark.parametrize("seed", range(3))
def test_effects_are_apart_from_those_of_other_columns(seed: int) -> None:
    rows, logs, effects = drawn(seed)
    encoder, matrix = Encoder.fit(rows, content=False).with_effects(rows, logs, list(range(ROWS)))
    assert encoder.columns[-1] == "column.tool effect 0"
    assert matrix.shape == (ROWS, len(encoder.columns)) == encoder.transform(rows).shape
    for column in (matrix[:, -1], encoder.transform(rows)[:, -1]):
        difference = column - effects
        assert np.std(difference) < 0.15
        assert np.corrcoef(column, effects)[0, 1] > 0.98


def test_a_row_has_no_effect_of_its_own_label_or_group() -> None:
    rows, logs, _ = drawn(2)
    groups = np.arange(ROWS) // 2
    changed = logs.copy()
    changed[groups == 7] += 50.0
    before, after = (
        Encoder.fit(rows, content=False).with_effects(rows, y, groups.tolist())[1][:, -1]
        for y in (logs, changed)
    )
    np.testing.assert_array_equal(before[groups == 7], after[groups == 7])


def test_an_effect_that_only_its_group_tells_is_not_used_in_other_rows() -> None:
    rows, logs, _ = drawn(3)
    encoder, matrix = Encoder.fit(rows, content=False).with_effects(
        rows, logs, [row["column.tool"] for row in rows]
    )
    assert not matrix[:, -1].any()
    assert not encoder.transform(rows)[:, -1].any()


def test_levels_without_a_column_are_seen_and_others_are_not(tmp_path: Path) -> None:
    rows, logs, _ = drawn()
    encoder, _ = Encoder.fit(rows, content=False).with_effects(rows, logs, list(range(ROWS)))
    assert len(encoder.categories[0]) == MAXIMUM_ENCODED
    encoder.save(tmp_path)
    new = {**rows[0], "column.tool": "bought later"}
    assert TrainingRange.fit(rows, content=False).outside([*rows, new]) == [
        *[()] * ROWS, ("column.tool",),
    ]  # fmt: skip
    for each in (encoder, Encoder.load(tmp_path)):
        assert each.transform([new])[0, -1] == 0.0
        np.testing.assert_array_equal(each.transform(rows), encoder.transform(rows))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    Encoder.fit(drawn()[0], content=False).save(tmp_path)
    content = read_sealed(tmp_path / "encoder.json")
    write_sealed(tmp_path / "encoder.json", {**content, "unheard_of": 1})
    with pytest.raises(ModelError, match="not an encoder"):
        Encoder.load(tmp_path)


def test_what_no_training_row_lacks_is_out_of_range_where_it_is_missing() -> None:
    rows = [
        {"column.size": 1.0 + n, "column.gap": None if n == 3 else 1.0, "column.tool": "ab"[n % 2],
         "column.note": None if n == 4 else "x", "column.fixed": 2.0,
         "content.foreground_megavoxels": 1.0 + n, "content.noise_ratio": 0.1 * n}
        for n in range(12)
    ]  # fmt: skip
    lacking = [{**rows[0], name: None} for name in rows[0]]
    missing = [(name,) for name in rows[0]]
    volume = TrainingRange.fit(rows, content=True).outside(lacking)
    assert volume == [
        names if names[0] not in ("column.gap", "column.note", "content.noise_ratio") else ()
        for names in missing
    ]
    # At the level of the header no question has content.
    header = TrainingRange.fit(rows, content=False).outside(lacking)
    assert header == [
        names if names[0] in ("column.size", "column.tool", "column.fixed") else ()
        for names in missing
    ]
