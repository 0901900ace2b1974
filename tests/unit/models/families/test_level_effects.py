"""Columns with more texts than columns: the effects of their levels."""

from pathlib import Path

import numpy as np
import pytest

from voxcast.errors import ModelError
from voxcast.models.families.encoder import MAXIMUM_ENCODED, Encoder
from voxcast.models.model_files import read_sealed, write_sealed
from voxcast.models.out_of_range import TrainingRange

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
