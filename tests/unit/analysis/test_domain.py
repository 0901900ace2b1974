"""The domain of a cohort: what lies outside of it is named, by head and characteristic."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxcast.analysis.domain import compare_on_record, domain
from voxcast.errors import TableError
from voxcast.images.characteristics import CHARACTERISTICS, characteristics
from voxcast.images.volume import Volume

ROOT = Path(__file__).parents[3]
HISTORY = ROOT / "data" / "history"
REAL_T1 = os.environ.get("VOXCAST_REAL_T1")


def _cohort(count: int = 201) -> pd.DataFrame:
    values = {name: np.linspace(0.0, 1.0, count) for name in CHARACTERISTICS}
    subjects = [f"v{n:04d}" for n in range(count)]
    return pd.DataFrame({"subject": subjects, "voxel_sha256": subjects, **values})


def _heads(**values: float) -> pd.DataFrame:
    inside = {"subject": "a", "voxel_sha256": "1", **dict.fromkeys(CHARACTERISTICS, 0.5)}
    other = {**inside, "subject": "b", "voxel_sha256": "2", **values}
    return pd.DataFrame([inside, other])


def test_heads_within_the_range_have_no_miss() -> None:
    comparison = domain(_heads(noise_ratio=0.98, asymmetry=0.02), _cohort())
    assert (comparison["heads_inside"], comparison["misses"]) == (2, {})
    assert comparison["range"]["noise_ratio"] == {"cohort": [0.01, 0.99], "heads": [0.5, 0.98]}
    assert comparison["heads"]["b"]["asymmetry"] == pytest.approx(5 / 201, abs=1e-4)


def test_a_miss_is_named_by_head_and_characteristic() -> None:
    comparison = domain(_heads(noise_ratio=0.995, foreground_ml=-3.0), _cohort())
    assert comparison["heads_inside"] == 1
    assert comparison["misses"] == {
        "b": [
            {"characteristic": "foreground_ml", "value": -3.0},
            {"characteristic": "noise_ratio", "value": 0.995},
        ]
    }


def test_each_head_on_record_counts_once(tmp_path: Path) -> None:
    batches = {"cohort": _cohort(101), "heads": _heads(), "more": _heads(noise_ratio=7.0)}
    for name, table in batches.items():
        (tmp_path / name).mkdir()
        table.to_parquet(tmp_path / name / "images.parquet")
    results = compare_on_record(tmp_path, ["cohort"], ["heads", "more"])
    assert results["cohort"]["volumes"] == 101
    assert results["cohort"]["heads_inside"] == len(results["cohort"]["heads"]) == 2
    with pytest.raises(TableError, match="no such file; run `voxcast measure --campaign missing`"):
        compare_on_record(tmp_path, ["cohort"], ["missing"])


@pytest.mark.skipif(REAL_T1 is None, reason="VOXCAST_REAL_T1 names no folder of real heads")
def test_the_numbers_of_the_heads_are_those_of_their_files() -> None:
    assert REAL_T1 is not None
    stored = pd.read_parquet(HISTORY / "heads" / "images.parquet").set_index("voxel_sha256")
    paths = sorted(Path(REAL_T1).rglob("*.nii*"))
    read = [Volume.open(path).read() for path in paths]
    volumes = [volume for volume in read if volume.voxel_sha256 in stored.index]
    assert len(volumes) == 13
    for volume in volumes:
        computed = characteristics(volume)
        row = stored.loc[volume.voxel_sha256]
        assert computed == pytest.approx({n: row[n] for n in CHARACTERISTICS}, 1e-3, 1e-4)


def test_the_heads_are_within_the_cohort_but_for_the_misses_that_are_named() -> None:
    results = compare_on_record(HISTORY, ["reference2"], ["heads", "real"])
    comparison = results["reference2"]
    assert comparison["volumes"] >= 100
    assert len(comparison["heads"]) == 13
    misses = {
        (head, miss["characteristic"])
        for head, missed in comparison["misses"].items()
        for miss in missed
    }
    assert misses == {
        ("chris", "foreground_surface_ratio"),
        ("someones_anatomy", "above_mean_fraction"),
    }
