"""The network's small volume, and its bytes."""

from __future__ import annotations

import io
from pathlib import Path

import nibabel
import numpy as np
import pytest

from voxcast.errors import ImageError
from voxcast.images.network_volume import (
    STEPS,
    network_from_bytes,
    network_to_bytes,
    network_volume,
    points_of,
    volume_dtype,
)
from voxcast.images.volume import Volume

AFFINE = np.diag([-2.0, 2.0, 3.0, 1.0])
SHAPE = (90, 70, 50)


def _saved_ellipsoid(path: Path) -> Path:
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"))
    noise = np.random.default_rng(3).normal(0, 20, SHAPE)
    array = (1000 * ((grid**2).sum(0) < 0.6) * (1 + grid[0]) + noise).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(array, AFFINE), path)
    return path


def test_the_input_of_the_network_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    volume = network_volume(Volume.open(_saved_ellipsoid(tmp_path / "a.nii.gz")).read(), 16)
    back = network_from_bytes(network_to_bytes(volume), 16)
    assert back.dtype == volume.dtype == volume_dtype(16)
    assert back.tobytes() == volume.tobytes()
    assert points_of(back) == 16


def _packed(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _changed(field: str, value: float) -> np.ndarray:
    volume = np.ones((), volume_dtype(8))
    volume[field].flat[0] = value
    return volume


GOOD = network_to_bytes(np.ones((), volume_dtype(8)))


@pytest.mark.parametrize(
    ("data", "points", "reason"),
    [
        (_packed(np.ones((4, 4), np.float16)[0, 0]), 8, "is not a cube of 8 points"),
        (GOOD, 9, "a cube of 9 points"),
        (_packed(np.ones(2, volume_dtype(8))), 8, "not a .npy array of one"),
        (_packed(np.full((8, 8, 8), None, object)), 8, "not a .npy"),
        (b"PK\x03\x04 something else", 8, "of one small volume"),
        (b"", 8, "of one small volume"),
        (GOOD[:-2], 8, "cut short"),
        (_packed(_changed("spacing_mm", np.nan)), 8, "a shape or spacing that is none"),
        (_packed(_changed("maps", STEPS + 1)), 8, "cells out of range"),
        # A header that promises more than is there must not reserve it.
        (GOOD.replace(b"(3, 8, 8, 8)", b"(3, 9, 9, 9)"), 9, "cut short"),
    ],
)
def test_bytes_that_are_refused(data: bytes, points: int, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        network_from_bytes(data, points)


def test_network_sees_canonical_axes(tmp_path: Path) -> None:
    array = nibabel.load(_saved_ellipsoid(tmp_path / "c.nii")).get_fdata(dtype=np.float32)
    canonical = nibabel.Nifti1Image(array, np.diag([2.0, 2.0, 3.0, 1.0]))
    turned = canonical.as_reoriented(nibabel.orientations.axcodes2ornt(("P", "S", "L")))
    nibabel.save(canonical, tmp_path / "a.nii")
    nibabel.save(turned, tmp_path / "b.nii")
    assert Volume.open(tmp_path / "b.nii").header.axcodes != "RAS"
    a, b = (network_volume(Volume.open(tmp_path / f"{name}.nii").read(90), 24) for name in "ab")
    assert a["maps"].shape == (3, 24, 24, 24)
    for volume in (a, b):
        assert volume["shape"].tolist() == list(SHAPE)
        assert volume["spacing_mm"].tolist() == [2.0, 2.0, 3.0]
    assert np.abs(a["maps"].astype(int) - b["maps"]).max() <= 1
    assert a["maps"][0].max() == STEPS
