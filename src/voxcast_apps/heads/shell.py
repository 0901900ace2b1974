"""The surroundings of a brain: skull, scalp, face and neck as simple solids in template space.

Solids are signed distances in millimetres (negative inside), in MNI coordinates (right, anterior,
superior). Thin layers are not stored but painted at the target's spacing, so that a coarse
volume shows partial volumes and not aliases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from voxcast_apps.heads.interpolation import share_below

GRID_MM = 2.0
LOW_MM = np.array([-112.0, -150.0, -190.0])  # corner of the maps' grid
SHAPE = (113, 143, 153)  # to +112, +134, +114 mm

CSF_MM = 1.5  # fluid between brain hull and skull
SKIN_MM = 2.0
# Intensities of a T1-weighted image, white matter being 1.
CSF, BONE, MARROW, SKIN, MUSCLE, AIR = 0.16, 0.06, 0.55, 0.5, 0.48, 0.02


@dataclass(frozen=True)
class Tissues:
    """Intensities of painted tissues, white matter being 1, and how it is spread.

    `gap_mm` is the fluid between brain hull and skull, `bone_spread` how much the thickness of the
    skull follows the patches, 0 to 1.
    """

    gap_mm: float = CSF_MM
    csf: float = CSF
    bone: float = BONE
    marrow: float = MARROW
    skin: float = SKIN
    bone_spread: float = 0.25


TEMPLATE_TISSUES = Tissues()


@dataclass(frozen=True)
class ShellMaps:
    """Maps on the `GRID_MM` grid, float32 of `SHAPE`.

    `hull_mm` is the distance from the closed brain, `face_mm` that from face and neck, `deep` the
    intensity of what lies below skin and fat, `patches` smooth noise between -1 and 1.
    """

    hull_mm: np.ndarray
    face_mm: np.ndarray
    deep: np.ndarray
    patches: np.ndarray


def build_maps(brain: np.ndarray) -> ShellMaps:
    """Build the maps around a brain mask (bool, on the maps' own grid)."""
    x, y, z = np.ogrid[tuple(slice(0, n) for n in SHAPE)]
    x, y, z = (low + GRID_MM * axis for low, axis in zip(LOW_MM, (x, y, z), strict=True))
    # The brain stem leaves the skull below; as part of the hull it would get a bulb of bone.
    cranial = brain & (z > -56)
    ball = np.sum(np.square(np.mgrid[-4:5, -4:5, -4:5]), axis=0) <= 16
    hull = _signed_distance(ndimage.binary_closing(cranial, ball, iterations=2))
    hull = ndimage.gaussian_filter(hull, 1.5)
    face = _face(x, y, z)
    rng = np.random.default_rng(7)
    coarse, fine = (_smooth_noise(rng, sigma) for sigma in (6.0, 1.6))
    deep = _deep_tissue(x, y, z, coarse, fine)
    return ShellMaps(*(a.astype(np.float32) for a in (hull, face, deep, coarse)))


def paint(
    hull_mm: np.ndarray,
    face_mm: np.ndarray,
    deep: np.ndarray,
    patches: np.ndarray,
    *,
    spacing_mm: float,
    skull_mm: float,
    fat_mm: float | np.ndarray,
    fat_intensity: float,
    tissues: Tissues = TEMPLATE_TISSUES,
) -> np.ndarray:
    """Return intensities around the brain for maps sampled on any grid; air outside is 0."""

    def below(edge_mm: np.ndarray | float, distance_mm: np.ndarray) -> np.ndarray:
        return share_below(edge_mm, distance_mm, spacing_mm)

    bone_mm = tissues.gap_mm + skull_mm * (1 + tissues.bone_spread * patches)
    scalp_mm = bone_mm + 1.5 + (fat_mm + SKIN_MM) * (1 + 0.3 * patches)
    # A soft minimum joins cranium, face and neck without creases.
    outside_mm = _soft_minimum(hull_mm - scalp_mm, face_mm, 9.0)
    head = below(0.0, outside_mm)
    under_skin = below(-SKIN_MM, outside_mm)
    under_fat = below(-SKIN_MM - fat_mm * (1 + 0.5 * patches), outside_mm)
    value = tissues.skin + under_skin * (fat_intensity - tissues.skin)
    value += under_fat * (deep - fat_intensity)
    bone = below(bone_mm, hull_mm)
    table_mm = (bone_mm - tissues.gap_mm) / 4  # compact bone within and without, marrow between
    diploe = below(bone_mm - table_mm, hull_mm) - below(tissues.gap_mm + table_mm, hull_mm)
    marrow = tissues.marrow * (1 + 0.4 * patches)
    skull = tissues.bone + np.clip(diploe, 0, 1) * (marrow - tissues.bone)
    value += bone * (skull - value)
    value += below(tissues.gap_mm, hull_mm) * (tissues.csf - value)
    painted: np.ndarray = np.clip(head * value, 0.0, None)
    return painted


def _face(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    bend = 0.15 * (z + 90)  # the neck leans forward on its way up
    parts = [
        _ellipsoid(x, y, z, (0, 38, -66), (64, 54, 62)),
        _ellipsoid(x, y, z, (0, 50, -110), (46, 42, 34)),  # jaw
        _ellipsoid(x, y, z, (0, 40, -40), (66, 48, 48)),  # cheeks and brow
        _ellipsoid(x, y, z, (0, 86, -52), (13, 26, 24)),  # nose
        _cylinder(x, y - bend, (0, -42), (57, 56)) + 0 * z,
        _ellipsoid(np.abs(x), y, z, (78, -22, -48), (8, 14, 26)),  # ears
    ]
    face = parts[0]
    for part in parts[1:]:
        face = _soft_minimum(face, part, 12.0)
    # The neck ends below the cranium, which has its own surface.
    return np.asarray(np.maximum(face, z + 2))


def _deep_tissue(
    x: np.ndarray, y: np.ndarray, z: np.ndarray, coarse: np.ndarray, fine: np.ndarray
) -> np.ndarray:
    deep = MUSCLE * (1 + 0.25 * fine + 0.2 * coarse)
    deep = np.where(fine + 0.5 * coarse > 0.75, 0.95, deep)  # fat between muscles
    side = np.abs(x)

    def put(distance_mm: np.ndarray, intensity: np.ndarray | float) -> None:
        nonlocal deep
        deep = deep + np.clip(0.5 - distance_mm / GRID_MM, 0, 1) * (intensity - deep)

    spine_y = -22 + 0.12 * (z + 90)
    put(np.maximum(_cylinder(x, y - spine_y, (0, 0), (13, 12)), z + 78), BONE)
    disc = np.abs((z + 300) % 18 - 9) < 7  # vertebrae and, between them, discs
    put(np.maximum(_cylinder(x, y - spine_y, (0, 0), (11, 10)), z + 80), np.where(disc, 0.5, 0.2))
    put(np.maximum(_cylinder(x, y - spine_y + 22, (0, 0), (12, 10)), z + 60), CSF)
    put(np.maximum(_cylinder(x, y - spine_y + 22, (0, 0), (6.5, 5.5)), z + 60), 0.75)
    arch = np.hypot(np.hypot(x / 0.85, y - 34) - 46, (z + 112) / 1.6) - 6  # lower jaw
    put(np.maximum(arch, 30 - y), BONE)
    put(np.maximum(arch + 3, 30 - y), 0.55)
    put(_ellipsoid(x, y, z, (0, 44, -96), (24, 32, 20)), 0.5 * (1 + 0.2 * fine))  # tongue
    put(_ellipsoid(side, y, z, (32, 58, -40), (19, 24, 18)), 0.95)  # fat of the orbits
    put(_ellipsoid(side, y, z, (32, 66, -40), (12, 12, 12)), CSF)
    for centre, radii in (
        ((0, 62, -54), (13, 28, 20)),  # nasal cavity
        ((28, 52, -62), (12, 15, 14)),  # maxillary sinuses
        ((0, 26, -38), (11, 10, 9)),  # sphenoidal sinus
        ((0, 8, -90), (9, 8, 32)),  # pharynx
        ((50, -32, -46), (10, 14, 16)),  # mastoid cells
    ):
        put(_ellipsoid(side, y, z, centre, radii) + 3 * fine, AIR)
    put(np.maximum(_cylinder(x, y, (0, 8), (8, 8)), z + 116), AIR)  # windpipe
    return np.asarray(ndimage.gaussian_filter(np.clip(deep, 0, 1.2), 0.5))


def _ellipsoid(
    x: np.ndarray,
    y: np.ndarray,
    z: np.ndarray,
    centre: tuple[float, float, float],
    radii: tuple[float, float, float],
) -> np.ndarray:
    parts = [(a - c) / r for a, c, r in zip((x, y, z), centre, radii, strict=True)]
    return np.asarray((np.sqrt(sum(p * p for p in parts)) - 1) * min(radii))


def _cylinder(
    x: np.ndarray, y: np.ndarray, centre: tuple[float, float], radii: tuple[float, float]
) -> np.ndarray:
    return np.asarray(
        (np.hypot((x - centre[0]) / radii[0], (y - centre[1]) / radii[1]) - 1) * min(radii)
    )


def _soft_minimum(a: np.ndarray, b: np.ndarray, width_mm: float) -> np.ndarray:
    share = np.clip(0.5 + 0.5 * (b - a) / width_mm, 0.0, 1.0)
    return np.asarray(b + (a - b) * share - width_mm * share * (1 - share))


def _signed_distance(mask: np.ndarray) -> np.ndarray:
    outside = ndimage.distance_transform_edt(~mask)
    inside = ndimage.distance_transform_edt(mask)
    return np.asarray((outside - inside) * GRID_MM)


def _smooth_noise(rng: np.random.Generator, sigma: float) -> np.ndarray:
    noise = ndimage.gaussian_filter(rng.standard_normal(SHAPE, dtype=np.float32), sigma)
    return np.asarray(np.clip(noise / (2 * noise.std()), -1, 1))
