"""The template head that all generated volumes are warped from, built once per process.

The brain is the MNI152 T1 that nilearn bundles, which is skull-stripped, with its tissue priors,
of an average brain. Skull, scalp, face and neck are simple solids: signed distances in
millimetres (negative inside), in MNI coordinates (right, anterior, superior). Thin layers are not
stored but painted at the target's spacing, so that a coarse volume shows partial volumes and not
aliases.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch


@dataclass(frozen=True)
class TemplateGrid:
    """A template-space grid: the coordinates of its first voxel's centre, and its spacing."""

    low_mm: np.ndarray
    spacing_mm: float
    shape: tuple[int, ...]


def sample(
    channels: torch.Tensor, grid: TemplateGrid, points_mm: torch.Tensor, edge: str = "zeros"
) -> torch.Tensor:
    """Interpolate channels ``(c, i, j, k)`` at points ``(..., 3)`` in reversed axis order.

    Parameters
    ----------
    edge : str
        Values outside the grid: ``zeros``, its ``border``, or its ``reflection``.
    """
    import torch

    extent_mm = grid.spacing_mm * (np.array(grid.shape) - 1.0)
    factor = torch.tensor((2 / extent_mm)[::-1].copy(), dtype=torch.float32)
    shift = torch.tensor((-2 * grid.low_mm / extent_mm - 1)[::-1].copy(), dtype=torch.float32)
    unit = torch.addcmul(shift, points_mm, factor)
    sampled: torch.Tensor = torch.nn.functional.grid_sample(
        channels[None], unit[None], mode="bilinear", padding_mode=edge, align_corners=True
    )[0]
    return sampled


def share_below(
    edge_mm: np.ndarray | float, distance_mm: np.ndarray, voxel_mm: float
) -> np.ndarray:
    """Return the share of a voxel that lies nearer than an edge, 0 to 1."""
    share: np.ndarray = np.clip((edge_mm - distance_mm) / voxel_mm + 0.5, 0.0, 1.0)
    return share


def share_of_sheet(
    half_mm: np.ndarray | float, distance_mm: np.ndarray, voxel_mm: float
) -> np.ndarray:
    """Return the share of a voxel in a sheet about a surface; thin ones fill little of it.

    Parameters
    ----------
    half_mm : numpy.ndarray or float
        Half the thickness of the sheet, not negative.
    distance_mm : numpy.ndarray
        Signed distance from the surface.
    """
    far = share_below(half_mm, distance_mm, voxel_mm)
    return np.asarray(far - share_below(-half_mm, distance_mm, voxel_mm))


GRID_MM = 2.0
LOW_MM = np.array([-112.0, -150.0, -190.0])  # corner of the maps' grid
SHAPE = (113, 143, 153)  # to +112, +134, +114 mm

CSF_MM = 1.5  # fluid between brain hull and skull
SKIN_MM = 2.0
# Intensities of a T1-weighted image, white matter being 1.
CSF, BONE, MARROW, SKIN, MUSCLE, AIR = 0.16, 0.06, 0.55, 0.5, 0.48, 0.02


def build_maps(brain: np.ndarray) -> np.ndarray:
    """Build the maps around a brain mask (bool, of `SHAPE`), float32 of shape ``(4, *SHAPE)``.

    They are the distance from the closed brain (the hull), the distance from face and neck, the
    intensity of what lies below skin and fat, and smooth noise between -1 and 1 (the patches).
    """
    x, y, z = np.ogrid[tuple(slice(0, n) for n in SHAPE)]
    x, y, z = (low + GRID_MM * axis for low, axis in zip(LOW_MM, (x, y, z), strict=True))
    # The brain stem leaves the skull below; as part of the hull it would get a bulb of bone.
    cranial = brain & (z > -56)
    ball = np.sum(np.square(np.mgrid[-4:5, -4:5, -4:5]), axis=0) <= 16
    closed = ndimage.binary_closing(cranial, ball, iterations=2)
    outside, inside = (ndimage.distance_transform_edt(m) for m in (~closed, closed))
    hull = ndimage.gaussian_filter((outside - inside) * GRID_MM, 1.5)
    rng = np.random.default_rng(7)
    coarse, fine = (_smooth_noise(rng, sigma) for sigma in (6.0, 1.6))
    deep = _deep_tissue(x, y, z, coarse, fine)
    return np.stack([hull, _face(x, y, z), deep, coarse]).astype(np.float32)


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
    gap_mm: float = CSF_MM,
    csf: float = CSF,
    bone: float = BONE,
    marrow: float = MARROW,
    skin: float = SKIN,
    bone_spread: float = 0.25,
) -> np.ndarray:
    """Return intensities around the brain for maps sampled on any grid; air outside is 0.

    Parameters
    ----------
    gap_mm, csf : float
        Thickness and intensity of the fluid between brain hull and skull.
    bone, marrow, skin, fat_intensity : float
        Intensities, white matter being 1.
    bone_spread : float
        How much the thickness of the skull follows the patches, 0 to 1.
    """

    def below(edge_mm: np.ndarray | float, distance_mm: np.ndarray) -> np.ndarray:
        return share_below(edge_mm, distance_mm, spacing_mm)

    bone_mm = gap_mm + skull_mm * (1 + bone_spread * patches)
    scalp_mm = bone_mm + 1.5 + (fat_mm + SKIN_MM) * (1 + 0.3 * patches)
    # A soft minimum joins cranium, face and neck without creases.
    outside_mm = _soft_minimum(hull_mm - scalp_mm, face_mm, 9.0)
    head = below(0.0, outside_mm)
    under_skin = below(-SKIN_MM, outside_mm)
    under_fat = below(-SKIN_MM - fat_mm * (1 + 0.5 * patches), outside_mm)
    value = skin + under_skin * (fat_intensity - skin)
    value += under_fat * (deep - fat_intensity)
    skull_share = below(bone_mm, hull_mm)
    table_mm = (bone_mm - gap_mm) / 4  # compact bone within and without, marrow between
    diploe = below(bone_mm - table_mm, hull_mm) - below(gap_mm + table_mm, hull_mm)
    skull = bone + np.clip(diploe, 0, 1) * (marrow * (1 + 0.4 * patches) - bone)
    value += skull_share * (skull - value)
    value += below(gap_mm, hull_mm) * (csf - value)
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


def _smooth_noise(rng: np.random.Generator, sigma: float) -> np.ndarray:
    noise = ndimage.gaussian_filter(rng.standard_normal(SHAPE, dtype=np.float32), sigma)
    return np.asarray(np.clip(noise / (2 * noise.std()), -1, 1))


BRAIN_PAD = 6  # voxels kept around the brain, for smoothing and interpolation
_SIGMA_STEP_MM = 0.25
_TISSUE_STEP_MM = 0.5


@dataclass(frozen=True)
class Brain:
    """Intensity (white matter near 1) and mask of the template brain on a 1 mm grid, float32."""

    intensity: np.ndarray
    mask: np.ndarray
    grid: TemplateGrid

    @property
    def volume_mm3(self) -> float:
        """Volume of the mask."""
        return float(self.mask.sum(dtype=np.float64)) * self.grid.spacing_mm**3


@functools.cache
def brain() -> Brain:
    """Load the template brain."""
    from nilearn.datasets import load_mni152_template

    image = load_mni152_template(resolution=1)
    intensity = np.asarray(image.dataobj, dtype=np.float32)
    mask = ndimage.binary_fill_holes(intensity > 0)
    box = ndimage.find_objects(mask.astype(np.int8))[0]
    intensity, mask = intensity[box], mask[box]
    intensity = intensity / np.percentile(intensity[mask], 95)
    # The template's fluid is brighter than a scan's, because it is an average of heads.
    intensity = np.where(mask, np.clip((intensity - 0.2) / 0.8, 0.05, None), 0)
    low_mm = image.affine[:3, 3] + [s.start for s in box] - BRAIN_PAD
    padded = np.pad(intensity.astype(np.float32), BRAIN_PAD)
    grid = TemplateGrid(low_mm, 1.0, padded.shape)
    return Brain(padded, np.pad(mask, BRAIN_PAD).astype(np.float32), grid)


@functools.cache
def brain_extent_mm() -> np.ndarray:
    """Return points on the brain's surface in template space, shape ``(n, 3)``."""
    template = brain()
    mask = template.mask > 0
    edge = np.argwhere(mask & ~ndimage.binary_erosion(mask))[::37]
    return np.asarray(edge * template.grid.spacing_mm + template.grid.low_mm)


def rotation(degrees: tuple[float, ...]) -> np.ndarray:
    """Return the rotation about right, then anterior, then superior, shape ``(3, 3)``."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_euler("xyz", degrees, degrees=True).as_matrix())


def brain_box_mm(
    rotation_deg: tuple[float, ...], scale: tuple[float, ...], oblique_deg: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest corner of a posed brain along the axes of a turned grid."""
    pose = rotation(rotation_deg) @ np.diag(scale)
    points = brain_extent_mm() @ pose.T @ rotation(oblique_deg)
    return points.min(axis=0), points.max(axis=0)


def brain_channels(spacing_mm: float) -> torch.Tensor:
    """Return intensity and mask as voxels of about a spacing see them, ``(2, i, j, k)``."""
    steps = round(_sigma_mm(spacing_mm) / _SIGMA_STEP_MM)
    return _smoothed(_brain_maps, steps * _SIGMA_STEP_MM)


def _brain_maps() -> tuple[np.ndarray, ...]:
    return brain().intensity, brain().mask


@functools.cache
def shell_channels() -> tuple[torch.Tensor, TemplateGrid]:
    """Return the shell's four maps, float32 of shape ``(4, i, j, k)``, and their grid."""
    import torch

    grid = TemplateGrid(LOW_MM, GRID_MM, SHAPE)
    template = brain()
    inside, within = [], []
    for axis in range(3):
        points_mm = grid.low_mm[axis] + GRID_MM * np.arange(grid.shape[axis])
        index = np.rint(points_mm - template.grid.low_mm[axis]).astype(int)
        inside.append((index >= 0) & (index < template.grid.shape[axis]))
        within.append(index[inside[-1]])
    mask = np.zeros(grid.shape, bool)
    mask[np.ix_(*inside)] = template.mask[np.ix_(*within)] > 0
    return torch.from_numpy(build_maps(mask)), grid


@functools.cache
def template_maps() -> np.ndarray:
    """Return the shares of CSF, GM and WM, float32 of shape ``(3, i, j, k)`` on brain's grid."""
    from nilearn.datasets import load_mni152_gm_template, load_mni152_wm_template

    template = brain()
    grey, white = (
        _on_grid(load(resolution=1), template.grid)
        for load in (load_mni152_gm_template, load_mni152_wm_template)
    )
    # No map of the fluid is bundled: it is the part of the brain that is neither grey nor white.
    fluid = np.clip(template.mask - grey - white, 0, None)
    return np.stack([fluid, grey * template.mask, white * template.mask]).astype(np.float32)


def maps_at(spacing_mm: float) -> torch.Tensor:
    """Return the tissue maps as voxels of a spacing see them, float32 ``(3, i, j, k)``."""
    return _smoothed(template_maps, _sigma_mm(spacing_mm))


def maps_near(spacing_mm: float) -> torch.Tensor:
    """Return the tissue maps as voxels of about a spacing see them; kept for the next volume."""
    steps = round(_sigma_mm(spacing_mm) / _TISSUE_STEP_MM)
    return _smoothed(template_maps, steps * _TISSUE_STEP_MM)


def _sigma_mm(spacing_mm: float) -> float:
    # A voxel of s mm blurs like a Gaussian of about s / 2.355; the template has 1 mm already.
    return float(max(0.0, spacing_mm**2 - 1.0) ** 0.5 / 2.355)


@functools.lru_cache(maxsize=8)  # each takes 50 MB
def _smoothed(maps: Callable[[], Iterable[np.ndarray]], sigma_mm: float) -> torch.Tensor:
    import torch

    return torch.from_numpy(
        np.stack([ndimage.gaussian_filter(m, sigma_mm, truncate=3.0) for m in maps()])
    )


def _on_grid(image: Any, grid: TemplateGrid) -> np.ndarray:
    """Cut a 1 mm map to the grid, which lies on the same voxels and has a border of zeros."""
    data = np.asarray(image.dataobj, dtype=np.float32)
    start = np.rint(grid.low_mm - image.affine[:3, 3]).astype(int)
    padded = np.pad(data, BRAIN_PAD)
    start = start + BRAIN_PAD
    window = (slice(n, n + size) for n, size in zip(start, grid.shape, strict=True))
    return np.asarray(padded[tuple(window)])
