"""How one volume of the cohort is made: every number that decides it, drawn from seed and index.

A recipe is data; `voxcast.images.rendering` follows it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from voxcast.errors import ConfigError
from voxcast.files import canonical_json, sha256_of

# Raised whenever the same recipe gives other voxels: it is part of every generated volume's name.
GENERATOR_VERSION = "1"

DTYPES = ("uint8", "int16", "uint16", "float32")
ORIENTATIONS = ("RAS", "LAS", "LPS", "LPI", "RPI", "PSR", "PIR", "LIA", "ASL", "ARS")
Vector = tuple[float, float, float]

DESCRIPTIONS = {
    "participant_id": "Label of the generated subject",
    "recipe_sha256": "SHA-256 of all numbers that decide the volume",
    "generator_version": "Version of the generator that follows the recipe",
    "seed": "Seed of the image set",
    "index": "Number of the subject, from 1",
    "attempt": "How often the subject was drawn again because its volume failed the check",
    "spacing_mm": "Voxel spacing along right, anterior, superior in millimetres",
    "orientation": "Axis codes of the file",
    "oblique_deg": "Rotation of the grid against the scanner about each axis, in degrees",
    "rotation_deg": "Rotation of the head about each axis, in degrees",
    "scale": "Size of the head over that of the template, per axis",
    "elastic_mm": "Largest displacement of the elastic anatomy, in millimetres",
    "margins_mm": "Field of view beyond the brain: left, right, posterior, anterior, inferior, "
    "superior, in millimetres",
    "shell": "Whether skull, scalp, face and neck are there (false: skull-stripped)",
    "skull_mm": "Thickness of the skull in millimetres",
    "fat_mm": "Thickness of the fat below the skin in millimetres",
    "fat_intensity": "Intensity of fat over that of white matter",
    "bias": "Coefficients of the bias field's cubic polynomial",
    "noise": "Standard deviation of the Rician noise over white matter intensity",
    "motion_deg": "Rotations of the head during the acquisition, in degrees; empty for none",
    "motion_mm": "Translations during the acquisition, in millimetres; empty for none",
    "motion_times": "When it moved, as shares of the acquisition, 0 to 1",
    "ghosts": "Number of ghosts, 0 for none",
    "ghost_axis": "Axis of the ghosts: 0, 1 or 2",
    "ghost_intensity": "Strength of the ghosts, 0 to 1",
    "gamma": "Exponent applied to intensities scaled to 0 to 1",
    "dtype": "Type of the voxels",
    "full_range": "Intensity that the brightest voxel is given",
    "noise_seed": "Seed of elastic anatomy and noise",
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides one generated volume; `DESCRIPTIONS` says what each means."""

    seed: int
    index: int
    attempt: int
    spacing_mm: Vector
    orientation: str
    oblique_deg: Vector
    rotation_deg: Vector
    scale: Vector
    elastic_mm: float
    margins_mm: tuple[float, ...]
    shell: bool
    skull_mm: float
    fat_mm: float
    fat_intensity: float
    bias: tuple[float, ...]
    noise: float
    motion_deg: tuple[Vector, ...]
    motion_mm: tuple[Vector, ...]
    motion_times: tuple[float, ...]
    ghosts: int
    ghost_axis: int
    ghost_intensity: float
    gamma: float
    dtype: str
    full_range: float
    noise_seed: int

    @property
    def sha256(self) -> str:
        """Hash of all fields."""
        return sha256_of(asdict(self))

    def columns(self) -> dict[str, Any]:
        """Return the recipe's columns of ``participants.tsv``; lists are JSON."""
        values: dict[str, Any] = {
            "recipe_sha256": self.sha256,
            "generator_version": GENERATOR_VERSION,
        }
        for name, value in asdict(self).items():
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            values[name] = value if plain else canonical_json(value)
        return values


def draw_recipe(
    seed: int,
    index: int,
    *,
    fine_every: int,
    fine_spacing_mm: tuple[float, ...],
    coarse_spacing_mm: tuple[float, ...],
    attempt: int = 0,
) -> Recipe:
    """Draw the recipe of subject `index` (from 1); other subjects do not matter.

    Parameters
    ----------
    fine_every : int
        Every so many subjects one has a fine grid with a close field of view; 0 for none.
    fine_spacing_mm, coarse_spacing_mm : tuple of float
        Lowest and highest spacing of the fine and of the other subjects.
    attempt : int
        Draws another recipe for the same subject.

    Raises
    ------
    ConfigError
        If a range of spacings is not two increasing positive numbers.
    """
    for name, bounds in (
        ("fine_spacing_mm", fine_spacing_mm),
        ("coarse_spacing_mm", coarse_spacing_mm),
    ):
        if len(bounds) != 2 or not 0 < bounds[0] <= bounds[1]:
            raise ConfigError(
                f"needs two increasing numbers above 0, not {list(bounds)}", f"images.{name}"
            )
    rng = np.random.default_rng(np.random.SeedSequence([seed, index, attempt]))
    fine = fine_every > 0 and index % fine_every == 0
    # Drawn in one order whatever is chosen, so that one choice does not change all others.
    spacing_mm = _isotropic(rng, *fine_spacing_mm)
    coarse_mm = _coarse_spacing(rng, *coarse_spacing_mm)
    size = rng.uniform(0.87, 1.0)
    scale = _vector(size * rng.uniform(0.96, 1.04, 3))
    tilt = rng.normal(0, [6.0, 4.0, 5.0]).clip(-15, 15)
    oblique = rng.uniform(-12, 12, 3) * (rng.random() < 0.3)
    elastic_mm = rng.uniform(2.0, 5.0)
    close = rng.uniform(2.0, 4.0, 6)
    wide = _wide_margins(rng)
    shell = rng.random() < (0.3 if fine else 0.75)
    motion = _motion(rng)
    ghosts = int(rng.integers(3, 9)) * int(rng.random() < 0.2)
    dtype = str(rng.choice(DTYPES, p=(0.25, 0.4, 0.15, 0.2)))
    bright = float(round(rng.uniform(600, 4000)))
    return Recipe(
        seed=seed,
        index=index,
        attempt=attempt,
        spacing_mm=spacing_mm if fine else coarse_mm,
        orientation=str(rng.choice(ORIENTATIONS)),
        oblique_deg=(0.0, 0.0, 0.0) if fine else _vector(oblique),
        # A turned head needs a larger box, and a fine grid is to stay small.
        rotation_deg=_vector(tilt * (0.3 if fine else 1.0)),
        scale=scale,
        elastic_mm=round(elastic_mm * (0.7 if fine else 1.0), 4),
        margins_mm=_rounded(close if fine else wide),
        shell=bool(shell),
        skull_mm=round(rng.uniform(4.0, 7.0), 4),
        fat_mm=round(rng.uniform(1.5, 5.0), 4),
        fat_intensity=round(rng.uniform(0.8, 1.35), 4),
        bias=_rounded(rng.normal(0, rng.uniform(0.03, 0.25), 20)),
        noise=round(float(np.exp(rng.uniform(np.log(0.006), np.log(0.07)))), 5),
        motion_deg=motion[0],
        motion_mm=motion[1],
        motion_times=motion[2],
        ghosts=ghosts,
        ghost_axis=int(rng.integers(3)),
        ghost_intensity=round(rng.uniform(0.1, 0.4), 4),
        gamma=round(float(np.exp(rng.uniform(np.log(0.75), np.log(1.4)))), 4),
        dtype=dtype,
        full_range=255.0 if dtype == "uint8" else bright,
        noise_seed=int(rng.integers(2**31)),
    )


def _isotropic(rng: np.random.Generator, low_mm: float, high_mm: float) -> Vector:
    return _vector(np.full(3, rng.uniform(low_mm, high_mm)))


def _coarse_spacing(rng: np.random.Generator, low_mm: float, high_mm: float) -> Vector:
    """Two of five have thick slices; every spacing stays within the range."""
    spacing_mm = np.full(3, rng.uniform(low_mm, high_mm))
    plane, slices = rng.uniform(0, 0.4), rng.uniform(0.7, 1.0)
    axis = rng.integers(3)
    if rng.random() < 0.4:
        spacing_mm[:] = low_mm + plane * (high_mm - low_mm)
        spacing_mm[axis] = low_mm + slices * (high_mm - low_mm)
    return _vector(spacing_mm)


def _wide_margins(rng: np.random.Generator) -> np.ndarray:
    """From a box about the head to one with air around it and the neck in view."""
    sides = rng.uniform(8, 45)
    inferior = rng.uniform(3, 25) if rng.random() < 0.35 else rng.uniform(25, 85)
    front_and_back = (rng.uniform(10, 35), rng.uniform(12, 60))
    return np.array([sides, sides, *front_and_back, inferior, rng.uniform(10, 40)])


def _motion(
    rng: np.random.Generator,
) -> tuple[tuple[Vector, ...], tuple[Vector, ...], tuple[float, ...]]:
    """A fifth of the subjects move, once or twice."""
    count = int(rng.integers(1, 3))
    degrees = rng.uniform(-4, 4, (2, 3))
    shifts_mm = rng.uniform(-3, 3, (2, 3))
    times = np.sort(rng.uniform(0.1, 0.9, 2))
    if rng.random() >= 0.2:
        return (), (), ()
    turns = tuple(_vector(row) for row in degrees[:count])
    return turns, tuple(_vector(row) for row in shifts_mm[:count]), _rounded(times[:count])


def _vector(values: np.ndarray) -> Vector:
    x, y, z = _rounded(values)
    return (x, y, z)


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    # Rounded, so that the table holds exactly the recipe that was followed; + 0.0 for -0.0.
    return tuple(round(float(value), 4) + 0.0 for value in values)
