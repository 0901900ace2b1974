"""What ITK and ANTs refuse is told before a run, and what they read is not."""

from __future__ import annotations

import logging
from pathlib import Path

import ants
import nibabel
import numpy as np
import pytest

from voxcast.images.catalogue import build_catalogue
from voxcast.images.header import log_itk_refusals
from voxcast.images.sources import refresh
from voxcast.images.volume import Volume

ROTATION = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
VOXELS = np.random.default_rng(0).integers(0, 90, (9, 8, 7))


def _write(
    path: Path,
    dtype: str = "int16",
    slope: float | None = None,
    shear: float = 0.0,
    qform_code: int = 0,
    nifti: type[nibabel.Nifti1Image] = nibabel.Nifti1Image,
) -> Path:
    affine = np.eye(4)
    affine[:3, :3] = ROTATION @ [[1, shear, 0], [0, 1, 0], [0, 0, 1]] @ np.diag([1, 0.8, 1.4])
    image = nifti(VOXELS.astype(dtype), affine, dtype=dtype)
    image.set_sform(affine, 1)
    image.set_qform(affine, qform_code, strip_shears=True)
    image.header.set_slope_inter(slope, None if slope is None else 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.to_filename(path)
    return path


@pytest.mark.parametrize(
    ("choices", "refusal"),
    [
        *(({"dtype": dtype}, "") for dtype in ("uint8", "int32", "uint32", "float64")),
        ({"dtype": "int64"}, "its voxels are int64; save it as float32"),
        ({"dtype": "uint64"}, "its voxels are uint64; save it as float32"),
        ({"dtype": "int64", "slope": 0.5}, ""),  # scaled to float as it is read
        ({"shear": 0.3}, "its axes are not at right angles"),
        ({"shear": 0.001}, "its axes are not at right angles"),
        ({"shear": 5e-5}, ""),
        ({"shear": 0.3, "qform_code": 1}, ""),  # the qform is taken, which has no shears
        ({"nifti": nibabel.Nifti2Image}, "it is NIfTI-2; save it as NIfTI-1"),
    ],
)
def test_a_volume_is_refused_where_ants_refuses_it(
    tmp_path: Path, choices: dict[str, object], refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = _write(tmp_path / "a.nii", **choices)
    answer = Volume.open(path).itk_refusal  # it is accepted
    assert answer.startswith(refusal)
    log_itk_refusals([(path, answer)])
    if refusal:
        with pytest.raises((RuntimeError, KeyError)):
            ants.image_read(str(path))
        (message,) = caplog.messages
        assert message.startswith(f"{path}: applications built on ITK, such as ANTs, refuse it: ")
    else:
        assert not answer
        assert ants.image_read(str(path)).shape == VOXELS.shape
        assert not caplog.messages


def test_a_set_of_images_has_one_line_for_each_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bids = tmp_path / "bids"
    for subject in range(1, 8):
        _write(
            bids / f"sub-0{subject}/anat/sub-0{subject}_T1w.nii.gz",
            dtype="int64" if subject in (2, 3, 5) else "int16",
            shear=0.2 if subject in (6, 7) else 0.0,
        )
    with caplog.at_level(logging.WARNING, "voxcast.images.header"):
        assert build_catalogue(refresh(bids), tmp_path / "out", 32, 8) == 0
    messages = [message for message in caplog.messages if "ITK" in message]
    assert len(messages) == 2
    refusers = "applications built on ITK, such as ANTs, refuse them: "
    assert f"sub-02_T1w.nii.gz and 2 others: {refusers}its voxels are int64" in messages[0]
    assert "sub-06_T1w.nii.gz and 1 other: " in messages[1]
    assert f"{refusers}its axes are not at right angles" in messages[1]
