"""Participants whose intensity along an axis is a column of their table."""

import csv
import json
from pathlib import Path

import nibabel
import numpy as np

SPACING_MM = 8.0


def write_participants(folder: Path, count: int) -> Path:
    """Write volumes of 8 mm whose intensity grows along x as ``gamma`` of the table says."""
    rng = np.random.default_rng(4)
    affine = np.diag([SPACING_MM] * 3 + [1.0])
    affine[:3, 3] = (-100.0, -130.0, -80.0)
    x_mm = np.arange(26)[:, None, None] * SPACING_MM - 100.0
    rows = []
    for number in range(count):
        slope, label = rng.uniform(-1, 1), f"sub-{number:02d}"
        voxels = 100 * (1 + slope * x_mm / 200) + rng.normal(0, 3, (26, 32, 24))
        path = folder / label / "anat" / f"{label}_T1w.nii.gz"
        path.parent.mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(voxels.astype(np.float32), affine), path)
        rows.append([label, slope, json.dumps([slope, slope**2]), 1.0, "n/a"])
    with (folder / "participants.tsv").open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["participant_id", "gamma", "both", "same", "age"])
        writer.writerows(rows)
    return folder
