"""What varies between heads and scanners beyond the template: the second part of a recipe.

Intensities are over that of white matter before noise. A recipe without a `Variety` gives the
template's own head, see `voxcast.images.recipe`.
"""

from __future__ import annotations

from dataclasses import dataclass

BACKGROUNDS = ("noise", "zero", "level")

DESCRIPTIONS = {
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
    """Tissues, folds, vessels, scalp, coil and borders; `DESCRIPTIONS` says what each means."""

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
