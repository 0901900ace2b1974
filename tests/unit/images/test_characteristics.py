"""Characteristics of volumes whose answers are known."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest

from voxcast.images.characteristics import CHARACTERISTICS, characteristics
from voxcast.images.volume import Volume


def _values(folder: Path, data: np.ndarray, points: int = 64) -> dict[str, float]:
    """Return the characteristics of a file of 1 mm with these voxels."""
    nibabel.save(nibabel.Nifti1Image(data.astype(np.float32), np.eye(4)), folder / "a.nii")
    return _of(folder / "a.nii", points)


def _of(path: Path, points: int = 64) -> dict[str, float]:
    return characteristics(Volume.open(path).read(points))


def _ball(n: int = 48, radius: float = 15.0, noise: float = 0.0) -> np.ndarray:
    grid = np.stack(np.mgrid[:n, :n, :n]) - (n - 1) / 2
    ball = 100.0 * ((grid**2).sum(0) <= radius**2)
    return ball + np.random.default_rng(1).normal(0, noise, ball.shape)


@pytest.mark.parametrize("points", [48, 24, 12])
def test_extent_of_a_ball_does_not_depend_on_the_coarse_grid(tmp_path: Path, points: int) -> None:
    values = _values(tmp_path, _ball(), points)
    assert values["foreground_voxels"] == pytest.approx((_ball() > 0).sum(), rel=0.01)
    assert values["foreground_ml"] == pytest.approx(values["foreground_voxels"] / 1000)
    assert values["foreground_extent_fraction"] == pytest.approx((30 / 48) ** 3)
    # The sides of voxels of a ball have 1.5 times its surface.
    assert values["foreground_surface_ratio"] == pytest.approx(1.5, rel=0.05)


def test_holes_are_filled_and_specks_removed(tmp_path: Path) -> None:
    solid = _ball()
    hollow = solid - _ball(radius=6.0)
    hollow[2:5, 2:5, 2:5] = 100
    expected = _values(tmp_path, solid)
    values = _values(tmp_path, hollow)
    assert values["foreground_voxels"] == expected["foreground_voxels"]
    assert values["component_count"] == 2


def test_intensity_scale_does_not_matter(tmp_path: Path) -> None:
    data = _ball(noise=5)
    turned = _values(tmp_path, 1e-3 * data - 7)
    assert list(turned) == list(CHARACTERISTICS)
    for name, value in _values(tmp_path, data).items():
        assert turned[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name


def test_noise_bias_and_side_change_the_characteristics(tmp_path: Path) -> None:
    clean, noisy = (_values(tmp_path, _ball(noise=s)) for s in (1, 8))
    assert noisy["noise_ratio"] > 4 * clean["noise_ratio"]
    ramp = np.linspace(0.5, 1.5, 48)[:, None, None]
    assert _values(tmp_path, _ball() * ramp)["bias_strength"] > 0.1
    assert clean["bias_strength"] < 0.02
    half = _ball()
    half[30:, :24] = 0
    assert _values(tmp_path, half)["asymmetry"] > clean["asymmetry"] + 0.1


def test_orientation_does_not_matter(tmp_path: Path) -> None:
    data = _ball(noise=2)
    data[:10] = 0
    image = nibabel.Nifti1Image(data.astype(np.float32), np.eye(4))
    turned = image.as_reoriented(nibabel.orientations.axcodes2ornt(("S", "R", "A")))
    nibabel.save(turned, tmp_path / "b.nii")
    other = _of(tmp_path / "b.nii")
    for name, value in _values(tmp_path, data).items():
        assert other[name] == pytest.approx(value, rel=1e-3, abs=1e-3), name
