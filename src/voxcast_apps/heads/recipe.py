"""The recipe of a generated volume: all numbers that decide it, drawn from seed and index.

A recipe is data; `voxcast_apps.heads.rendering` follows it. In that of a varied head all that
`Variety` names is drawn for each subject. Its ranges follow physics and practice, and are wider
than any one scanner's, as domain randomisation wants them (SynthSeg, Billot et al. 2023): too much
variety in training costs less than too little.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.files import canonical_json, sha256_of
from voxcast_apps.heads import template
from voxcast_apps.heads.grids import Shape, Sizes, even_share, place

if TYPE_CHECKING:
    from numpy.random import Generator


# Raised whenever a recipe gives other voxels: they are part of the id of every generated volume.
GENERATOR_VERSION = "2"
VARIED_GENERATOR_VERSION = "3"  # of recipes with a variety

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
    "shape": "Number of voxels along right, anterior, superior",
    "spacing_mm": "Voxel spacing along right, anterior, superior in millimetres",
    "corner_mm": "Centre of the first voxel along the grid's own axes, in millimetres from the "
    "template's origin",
    "orientation": "Axis codes of the file",
    "oblique_deg": "Rotation of the grid against the scanner about each axis, in degrees",
    "rotation_deg": "Rotation of the head about each axis, in degrees",
    "scale": "Size of the head over that of the template, per axis",
    "elastic_mm": "Largest displacement of the elastic anatomy, in millimetres",
    "margins_mm": "Field of view wanted beyond the brain: left, right, posterior, anterior, "
    "inferior, superior, in millimetres; a fixed grid does not keep to it",
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
    "noise_seed": "Seed of elastic anatomy, folds and noise",
    "variety": "Tissues, folds, vessels, scalp, coil and borders of a varied head",
}


BACKGROUNDS = ("noise", "zero", "level")

VARIETY_DESCRIPTIONS = {
    "grey": "Intensity of grey matter",
    "csf": "Intensity of the brain's fluid",
    "crispness": "Exponent that sharpens the average template's tissue shares, 1 for none",
    "ventricle_gain": "Factor on the template's share of fluid, which moves the ventricles' walls",
    "fold_mm": "Distance between sulci",
    "sulcus_mm": "Width of sulci at the surface",
    "sulcus_depth_mm": "Depth of sulci below the brain's hull",
    "cortex_mm": "Thickness of the cortex; 0 leaves the template's, without sulci",
    "vessel_mm": "Thickness of vessels, 0 for none",
    "vessel_intensity": "Intensity of vessels",
    "gap_mm": "Fluid between brain and skull",
    "gap_csf": "Intensity of the fluid around the brain",
    "bone": "Intensity of compact bone",
    "marrow": "Intensity of marrow in the skull",
    "bone_spread": "How much the skull's thickness differs from place to place, 0 to 1",
    "skin": "Intensity of skin",
    "muscle": "Intensity of muscle and other deep tissue",
    "nape_mm": "Additional thickness of fat at the nape and below the jaw",
    "coil_gain": "Change of log intensity over 100 mm from the brain's middle",
    "blur": "Standard deviation of the smoothing after the noise, in voxels",
    "background": "Air has noise, is zero, or has a level of its own",
    "background_level": "Intensity of that level",
    "deface_deg": "Tilt of the plane before which the face is zero",
    "deface_mm": "Distance of that plane before the brain's middle; 0 for a face",
    "neck_mm": "Height below which all is zero, from the template's origin; 0 for none",
    "zero_borders": "Shares of the axes that are zero: first and last of each of the three",
    "top_percentile": "Percentile of intensity at which brighter voxels are clipped",
}


@dataclass(frozen=True)
class Variety:
    """What varies between heads and scanners beyond the template.

    `VARIETY_DESCRIPTIONS` says what each means; intensities are over that of white matter before
    noise.
    """

    grey: float
    csf: float
    crispness: float
    ventricle_gain: float
    fold_mm: float
    sulcus_mm: float
    sulcus_depth_mm: float
    cortex_mm: float
    vessel_mm: float
    vessel_intensity: float
    gap_mm: float
    gap_csf: float
    bone: float
    marrow: float
    bone_spread: float
    skin: float
    muscle: float
    nape_mm: float
    coil_gain: float
    blur: float
    background: str
    background_level: float
    deface_deg: float
    deface_mm: float
    neck_mm: float
    zero_borders: tuple[float, ...]
    top_percentile: float


@dataclass(frozen=True)
class Recipe:
    """Everything that decides one generated volume; `DESCRIPTIONS` says what each means."""

    seed: int
    index: int
    attempt: int
    shape: Shape
    spacing_mm: Vector
    corner_mm: Vector
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
    variety: Variety | None = None

    @property
    def generator_version(self) -> str:
        """Version of the generator that follows it."""
        return GENERATOR_VERSION if self.variety is None else VARIED_GENERATOR_VERSION

    @property
    def sha256(self) -> str:
        """Hash of all fields."""
        return sha256_of(self.values())

    def values(self) -> dict[str, Any]:
        """Return all fields as plain values; recipes without a variety have no such field."""
        values = asdict(self)
        if self.variety is None:
            del values["variety"]
        return values

    def on_grid(self, shape: Shape) -> Recipe:
        """Return the recipe of the same head in the same field of view on another grid.

        A coarse grid is rendered in a fraction of the time.
        """
        factor = np.array(self.shape) / np.array(shape)
        spacing_mm = np.array(self.spacing_mm) * factor
        corner_mm = np.array(self.corner_mm) + (spacing_mm - self.spacing_mm) / 2
        return replace(
            self, shape=shape, spacing_mm=vector(spacing_mm), corner_mm=vector(corner_mm)
        )

    def columns(self) -> dict[str, Any]:
        """Return the recipe's columns of ``participants.tsv``; lists are JSON."""
        values: dict[str, Any] = {
            "recipe_sha256": self.sha256,
            "generator_version": self.generator_version,
        }
        for name, value in self.values().items():
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            values[name] = value if plain else canonical_json(value)
        return values


def draw_recipe(seed: int, index: int, sizes: Sizes, attempt: int = 0) -> Recipe:
    """Draw the recipe of subject `index` (from 1), independently of other subjects.

    Parameters
    ----------
    sizes : Sizes
        Decides shape and spacing, and not the content.
    attempt : int
        Draws another content for the same subject.

    Raises
    ------
    ConfigError
        If no grid of `sizes` fits the field of view.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, index, attempt]))
    # Drawn in a fixed order, so that one choice does not change all others.
    ratio = _aspect(rng)
    drawn: dict[str, Any] = {
        "scale": vector(rng.uniform(0.87, 1.0) * rng.uniform(0.96, 1.04, 3)),
        "rotation_deg": vector(rng.normal(0, [6.0, 4.0, 5.0]).clip(-15, 15)),
        "oblique_deg": vector(rng.uniform(-12, 12, 3) * (rng.random() < 0.3)),
        "elastic_mm": round(rng.uniform(2.0, 5.0), 4),
    }
    close, wide = rng.uniform(2.0, 4.0, 6), _wide_margins(rng)
    drawn |= {
        "margins_mm": rounded(close if rng.random() < 0.2 else wide),
        "shell": bool(rng.random() < 0.75),
        **_motion(rng),
        "ghosts": int(rng.integers(3, 9)) * int(rng.random() < 0.2),
        "dtype": str(rng.choice(DTYPES, p=(0.25, 0.4, 0.15, 0.2))),
        "full_range": float(round(rng.uniform(600, 4000))),
        "orientation": str(rng.choice(ORIENTATIONS)),
    }
    return Recipe(
        seed=seed,
        index=index,
        attempt=attempt,
        **_placed(drawn, seed, index, sizes, ratio),
        skull_mm=round(rng.uniform(4.0, 7.0), 4),
        fat_mm=round(rng.uniform(1.5, 5.0), 4),
        fat_intensity=round(rng.uniform(0.8, 1.35), 4),
        bias=rounded(rng.normal(0, rng.uniform(0.03, 0.25), 20)),
        noise=_log_uniform(rng, 0.006, 0.07),
        ghost_axis=int(rng.integers(3)),
        ghost_intensity=round(rng.uniform(0.1, 0.4), 4),
        gamma=round(_exp_uniform(rng, 0.75, 1.4), 4),
        noise_seed=int(rng.integers(2**31)),
    )


def _placed(
    drawn: dict[str, Any], seed: int, index: int, sizes: Sizes, ratio: tuple[float, ...]
) -> dict[str, Any]:
    """Return what was drawn, with the grid of the subject."""
    fixed = sizes.fixed(index)
    if fixed is not None:  # one grid, one header: what differs is the content
        header = {"oblique_deg": (0.0,) * 3, "orientation": ORIENTATIONS[0], "dtype": "int16"}
        drawn = {**drawn, **header}
    if drawn["dtype"] == "uint8":
        drawn = {**drawn, "full_range": 255.0}
    pose = (drawn[name] for name in ("rotation_deg", "scale", "oblique_deg"))
    low_mm, high_mm = template.brain_box_mm(*pose)
    margins_mm = np.reshape(drawn["margins_mm"], (3, 2))
    cut_mm = np.maximum(-margins_mm, 0)  # a negative margin cuts the brain
    spare_mm = margins_mm + 0.6 * drawn["elastic_mm"] * (margins_mm > 0)
    grid = place(
        sizes,
        even_share(seed, index),
        fixed,
        ratio,
        brain_mm=(low_mm + cut_mm[:, 0], high_mm - cut_mm[:, 1]),
        wanted_mm=(low_mm - spare_mm[:, 0], high_mm + spare_mm[:, 1]),
    )
    vectors = {name: vector(np.array(grid[name])) for name in ("spacing_mm", "corner_mm")}
    return {**drawn, "shape": grid["shape"], **vectors}


def _aspect(rng: np.random.Generator) -> tuple[float, ...]:
    """Draw the spacings' ratio: two of five have thick slices, along any axis."""
    ratio = [1.0, 1.0, 1.0]
    thick, axis = float(rng.uniform(1.2, 2.0)), int(rng.integers(3))
    if rng.random() < 0.4:
        ratio[axis] = thick
    return tuple(ratio)


def _wide_margins(rng: np.random.Generator) -> np.ndarray:
    """From a box about the head to one with air around it and the neck in view."""
    sides = rng.uniform(8, 45)
    inferior = rng.uniform(3, 25) if rng.random() < 0.35 else rng.uniform(25, 85)
    front_and_back = (rng.uniform(10, 35), rng.uniform(12, 60))
    return np.array([sides, sides, *front_and_back, inferior, rng.uniform(10, 40)])


def _motion(rng: np.random.Generator) -> dict[str, tuple[Any, ...]]:
    """Draw degrees, millimetres and times: a fifth of the subjects move, once or twice."""
    count = int(rng.integers(1, 3))
    degrees = rng.uniform(-4, 4, (2, 3))
    shifts_mm = rng.uniform(-3, 3, (2, 3))
    times = np.sort(rng.uniform(0.1, 0.9, 2))
    if rng.random() >= 0.2:
        count = 0
    return {
        "motion_deg": tuple(vector(row) for row in degrees[:count]),
        "motion_mm": tuple(vector(row) for row in shifts_mm[:count]),
        "motion_times": rounded(times[:count]),
    }


def vector(values: np.ndarray) -> Vector:
    """Return three numbers as `rounded` does."""
    x, y, z = rounded(values)
    return (x, y, z)


def rounded(values: np.ndarray) -> tuple[float, ...]:
    """Return numbers with the decimals of the table, so that the table alone defines a head."""
    # + 0.0 for -0.0
    return tuple(round(float(value), 4) + 0.0 for value in values)


def draw_varied_recipe(seed: int, index: int, sizes: Sizes, attempt: int = 0) -> Recipe:
    """Draw the recipe of a varied head; see `voxcast_apps.heads.recipe.draw_recipe`.

    Raises
    ------
    ConfigError
        If no grid of `sizes` fits the field of view.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, index, attempt]))
    ratio = _aspect(rng)
    scale = vector(rng.uniform(0.82, 1.02) * rng.uniform(0.95, 1.05, 3))
    averaged = bool(rng.random() < 0.14)  # of several heads, or resampled until it is smooth
    aligned = averaged or bool(rng.random() < 0.25)  # as after a registration
    tilt = rng.normal(0, [8.0, 5.0, 6.0]).clip(-20, 20) * (0.15 if aligned else 1.0)
    drawn: dict[str, Any] = {
        "scale": scale,
        "rotation_deg": vector(tilt),
        "oblique_deg": vector(rng.uniform(-15, 15, 3) * (rng.random() < 0.25) * (not aligned)),
        "elastic_mm": round(rng.uniform(2.0, 7.0), 4),
        "margins_mm": rounded(_margins(rng, tight=0.75 if averaged else 0.14)),
        "shell": bool(rng.random() < 0.88),
        **_motion(rng),
        "ghosts": int(rng.integers(3, 9)) * int(rng.random() < 0.15),
        "dtype": str(rng.choice(DTYPES, p=(0.35, 0.35, 0.15, 0.15))),
        "full_range": float(round(_exp_uniform(rng, 200, 4000))),
        "orientation": str(rng.choice(ORIENTATIONS)),
    }
    noise = _log_uniform(rng, 0.008, 0.3) * (0.3 if averaged else 1.0)
    bias_spread = rng.uniform(0.01, 0.25) * (0.3 if averaged else 1.0)
    variety = _variety(rng, shell=drawn["shell"])
    if averaged:
        variety = _averaged(rng, variety, shell=drawn["shell"])
    return Recipe(
        seed=seed,
        index=index,
        attempt=attempt,
        **_placed(drawn, seed, index, sizes, ratio),
        skull_mm=round(rng.uniform(2.5, 9.0), 4),
        fat_mm=round(rng.uniform(0.5, 8.0), 4),
        fat_intensity=_fat(rng),
        bias=rounded(rng.normal(0, bias_spread, 20)),
        noise=round(noise, 5),
        ghost_axis=int(rng.integers(3)),
        ghost_intensity=round(rng.uniform(0.05, 0.4), 4),
        gamma=_log_uniform(rng, 0.75, 1.4),
        noise_seed=int(rng.integers(2**31)),
        variety=variety,
    )


def _variety(rng: Generator, *, shell: bool) -> Variety:
    grey = _uniform(rng, 0.5, 0.94)
    vessels = rng.random() < 0.6
    drawn = str(rng.choice(BACKGROUNDS, p=(0.6, 0.3, 0.1)))
    background = drawn if shell else "zero"  # the rest of a stripped head is
    level = _uniform(rng, 0.05, 0.5)
    deface_mm = _uniform(rng, 20, 60) * bool(rng.random() < 0.15)
    neck_mm = _uniform(rng, -85, -45) * bool(rng.random() < 0.15)
    bordered = rng.random() < 0.2
    borders = rng.uniform(0, 0.15, 6) * (rng.random(6) < 0.6) * bordered
    smoothed = rng.random() < 0.25
    blur = _uniform(rng, 0.3, 1.0)
    atrophied = rng.random() < 0.2
    clipped = rng.random() < 0.2  # as in exports to eight bits
    cortex_mm = _uniform(rng, 1.4, 4.0)
    gap_csf = _uniform(rng, 0.05, 0.4)
    return Variety(
        grey=grey,
        csf=round(grey * _uniform(rng, 0.08, 0.65), 4),
        crispness=_uniform(rng, 1.0, 4.0),
        ventricle_gain=_log_uniform(rng, 0.6, 4.0),
        fold_mm=_uniform(rng, *((6.0, 10.0) if atrophied else (6.5, 16.0))),
        sulcus_mm=_uniform(rng, *((2.5, 5.5) if atrophied else (0.2, 3.5))),
        sulcus_depth_mm=_uniform(rng, *((16.0, 30.0) if atrophied else (8.0, 24.0))),
        cortex_mm=cortex_mm * bool(rng.random() < 0.88),
        vessel_mm=_uniform(rng, 0.5, 3.5) * vessels,
        vessel_intensity=_uniform(rng, 0.1, 2.5),
        gap_mm=_uniform(rng, 0.3, 5.0),
        gap_csf=gap_csf,
        bone=_uniform(rng, 0.01, 0.25),
        marrow=_uniform(rng, 0.08, 1.2),
        bone_spread=_uniform(rng, 0.0, 0.8),
        skin=_uniform(rng, 0.25, 0.9),
        muscle=_uniform(rng, 0.25, 0.75),
        nape_mm=_uniform(rng, 0.0, 18.0),
        coil_gain=_uniform(rng, -0.3, 0.7),
        blur=blur * smoothed,
        background=background,
        background_level=level * (background == "level"),
        deface_deg=_uniform(rng, 5, 50),
        deface_mm=deface_mm,
        neck_mm=neck_mm,
        zero_borders=rounded(borders),
        top_percentile=_uniform(rng, 90.0, 98.5) if clipped else _uniform(rng, 98.5, 100.0),
    )


def _averaged(rng: Generator, variety: Variety, *, shell: bool) -> Variety:
    """Give a head the low contrast and the blurred folds of an average."""
    grey = _uniform(rng, 0.7, 0.96)
    csf = round(grey * _uniform(rng, 0.35, 0.9), 4)
    has_level = bool(rng.random() < 0.6) and shell
    return replace(
        variety,
        grey=grey,
        csf=csf,
        gap_csf=round(csf * _uniform(rng, 0.4, 1.0), 4),
        crispness=1.0,
        cortex_mm=0.0,
        vessel_mm=0.0,
        bone=_uniform(rng, 0.05, 0.4),
        blur=_uniform(rng, 0.4, 1.4),
        background="level" if has_level else variety.background,
        background_level=_uniform(rng, 0.15, 0.5) * has_level,
        deface_mm=0.0,
        neck_mm=0.0,
        zero_borders=(0.0,) * 6,
    )


def _margins(rng: Generator, tight: float) -> np.ndarray:
    """Draw the field of view beyond the brain: whole head, tight box at a rate, or cut."""
    sides = rng.uniform(2, 45)
    wide = np.array(
        [sides, sides, *rng.uniform(6, 45, 2), rng.uniform(3, 105), rng.uniform(4, 45)]
    )
    close = rng.uniform(-4, 7, 6)
    cut_mm = rng.uniform(1, 16, 6) * (rng.random(6) < 0.3)
    kind = rng.random()
    if kind < tight:
        return close
    return np.where(cut_mm > 0, -cut_mm, wide) if kind > 0.85 else wide


def _fat(rng: Generator) -> float:
    """Draw suppressed, usual or bright fat."""
    ranges = ((0.12, 0.5), (0.6, 1.5), (1.5, 3.5))
    low, high = ranges[int(rng.choice(3, p=(0.25, 0.4, 0.35)))]
    return _uniform(rng, low, high)


def _uniform(rng: Generator, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 4)


def _exp_uniform(rng: Generator, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _log_uniform(rng: Generator, low: float, high: float) -> float:
    return round(_exp_uniform(rng, low, high), 5)
