"""Recipes of varied heads: all that `Variety` names is drawn for each subject.

Ranges follow physics and practice, and are wider than any one scanner's, as domain
randomisation wants them (SynthSeg, Billot et al. 2023): too much variety in training costs
less than too little.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast_apps.heads import template
from voxcast_apps.heads.grids import Sizes, even_share, place
from voxcast_apps.heads.recipe import (
    BACKGROUNDS,
    DTYPES,
    ORIENTATIONS,
    Recipe,
    Variety,
    aspect,
    motion,
    rounded,
    vector,
)

if TYPE_CHECKING:
    from numpy.random import Generator


def draw_varied_recipe(seed: int, index: int, sizes: Sizes, attempt: int = 0) -> Recipe:
    """Draw the recipe of a varied head; see `voxcast_apps.heads.recipe.draw_recipe`.

    Raises
    ------
    ConfigError
        If no grid of `sizes` fits the field of view.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, index, attempt]))
    fixed = sizes.fixed(index)
    # Drawn in a fixed order, so that one choice does not change all others.
    ratio = aspect(rng)
    scale = vector(rng.uniform(0.82, 1.02) * rng.uniform(0.95, 1.05, 3))
    averaged = bool(rng.random() < 0.14)  # of several heads, or resampled until it is smooth
    aligned = averaged or bool(rng.random() < 0.25)  # as after a registration
    tilt = vector(rng.normal(0, [8.0, 5.0, 6.0]).clip(-20, 20) * (0.15 if aligned else 1.0))
    oblique = vector(rng.uniform(-15, 15, 3) * (rng.random() < 0.25) * (not aligned))
    elastic_mm = round(rng.uniform(2.0, 7.0), 4)
    margins_mm = rounded(_margins(rng, tight=0.75 if averaged else 0.14))
    shell = bool(rng.random() < 0.88)
    degrees, shifts_mm, times = motion(rng)
    ghosts = int(rng.integers(3, 9)) * int(rng.random() < 0.15)
    dtype = str(rng.choice(DTYPES, p=(0.35, 0.35, 0.15, 0.15)))
    bright = float(round(np.exp(rng.uniform(np.log(200), np.log(4000)))))
    orientation = str(rng.choice(ORIENTATIONS))
    noise = _log_uniform(rng, 0.008, 0.3) * (0.3 if averaged else 1.0)
    bias_spread = rng.uniform(0.01, 0.25) * (0.3 if averaged else 1.0)
    variety = _variety(rng, shell=shell)
    if averaged:
        variety = _averaged(rng, variety, shell=shell)
    if fixed is not None:
        oblique, orientation, dtype = (0.0, 0.0, 0.0), ORIENTATIONS[0], "int16"
    low_mm, high_mm = template.brain_box_mm(tilt, scale, oblique)
    margins = np.reshape(margins_mm, (3, 2))
    cut_mm = np.maximum(-margins, 0)
    spare_mm = margins + 0.6 * elastic_mm * (margins > 0)
    grid = place(
        sizes,
        even_share(seed, index),
        fixed,
        ratio,
        brain_mm=(low_mm + cut_mm[:, 0], high_mm - cut_mm[:, 1]),
        wanted_mm=(low_mm - spare_mm[:, 0], high_mm + spare_mm[:, 1]),
    )
    return Recipe(
        seed=seed,
        index=index,
        attempt=attempt,
        shape=grid.shape,
        spacing_mm=vector(np.array(grid.spacing_mm)),
        corner_mm=vector(np.array(grid.corner_mm)),
        orientation=orientation,
        oblique_deg=oblique,
        rotation_deg=tilt,
        scale=scale,
        elastic_mm=elastic_mm,
        margins_mm=margins_mm,
        shell=shell,
        skull_mm=round(rng.uniform(2.5, 9.0), 4),
        fat_mm=round(rng.uniform(0.5, 8.0), 4),
        fat_intensity=_fat(rng),
        bias=rounded(rng.normal(0, bias_spread, 20)),
        noise=round(noise, 5),
        motion_deg=degrees,
        motion_mm=shifts_mm,
        motion_times=times,
        ghosts=ghosts,
        ghost_axis=int(rng.integers(3)),
        ghost_intensity=round(rng.uniform(0.05, 0.4), 4),
        gamma=_log_uniform(rng, 0.75, 1.4),
        dtype=dtype,
        full_range=255.0 if dtype == "uint8" else bright,
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


def _log_uniform(rng: Generator, low: float, high: float) -> float:
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))), 5)
