"""Features in words: every feature has a natural value, and phrases hold it."""

import pytest

from voxcast.features.descriptions import amount, change, natural, outside, plain_name, usual
from voxcast.features.rows import features
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import Configuration

HEADER = {
    "shape_i": 176, "shape_j": 256, "shape_k": 256, "spacing_i_mm": 1.0, "spacing_j_mm": 0.5,
    "spacing_k_mm": 2.0, "file_size_bytes": 9_000_000, "bytes_per_voxel": 2, "dtype": "int16",
    "obliqueness_deg": 12.0,
}  # fmt: skip
CONTENTS = dict.fromkeys(CHARACTERISTICS, 0.25) | {"foreground_voxels": 2e6, "foreground_ml": 2e3}
ROW = features(
    HEADER, CONTENTS, "segment", {"spacing_mm": 4.0, "mode": "fast"}, Configuration("cpu", 8),
)  # fmt: skip
VOXELS = 176 * 256 * 256


@pytest.mark.parametrize(
    ("column", "expected", "text"),
    [
        ("header.log_voxels", VOXELS, "11.5 million voxels"),
        ("header.megavoxels", VOXELS, "11.5 million voxels"),
        ("header.log_working_voxels", VOXELS / 64, "0.180 million voxels"),
        ("header.log_extent_mm3", VOXELS, "11.5 litres"),
        ("header.log_anisotropy", 4.0, "4"),
        ("header.log_file_bytes_per_voxel", 9e6 / VOXELS, "0.7803 bytes"),
        ("header.is_float", 0.0, "integer"),
        ("content.log_foreground_voxels", 2e6, "2.00 million voxels"),
        ("content.foreground_megavoxels", 2e6, "2.00 million voxels"),
        ("content.log_foreground_ml", 2e3, "2000 ml"),
        ("content.noise_ratio", 0.25, "0.25"),
        ("allocation.log2_cpus", 8.0, "8 CPUs"),
        ("parameter.spacing_mm", 4.0, "4"),
    ],
)
def test_a_column_is_turned_back_to_its_natural_unit(
    column: str, expected: float, text: str
) -> None:
    value = natural(column, float(ROW[column]))
    assert value == pytest.approx(expected)
    assert amount(plain_name(column), value) == text


def test_every_numeric_feature_has_phrases() -> None:
    for column, value in ROW.items():
        if isinstance(value, str):
            assert value in outside(column, value, None, None)
            continue
        name, x = plain_name(column), natural(column, value)
        text = change(name, 1.5, x, x)
        assert text.startswith("+50 % for ")
        assert "{" not in text
        assert "log" not in text
        assert "mega" not in text
        assert "measured" in outside(column, value + 1, value - 0.5, value)
        assert "measured" in outside(column, value, value + 0.5, value + 1)


def test_the_usual_number_of_cpus_exists() -> None:
    for median in (0.0, 0.5, 1.0, 1.5, 2.0):
        cpus = natural("allocation.log2_cpus", usual("allocation.log2_cpus", median))
        assert cpus == pytest.approx(round(cpus))
        assert usual("allocation.log2_cpus", median) >= median
    assert usual("content.noise_ratio", 0.123) == 0.123


@pytest.mark.parametrize(
    ("megavoxels", "phrase"),
    [(42.0, "4.2 times larger"), (12.6, "26 % larger"), (0.5, "4.0 times smaller"),
     (1.5, "25 % smaller")],
)  # fmt: skip
def test_a_size_out_of_range_is_compared_with_the_nearest_measured(
    megavoxels: float, phrase: str
) -> None:
    text = outside("header.megavoxels", megavoxels, 2.0, 10.0)
    assert text.startswith(f"this volume is {phrase} than any that was measured")
    assert ("at most 10.0" if megavoxels > 10 else "at least 2.00") in text
