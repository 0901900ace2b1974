import nibabel
import numpy as np
import pytest

from voxcast.errors import ImageError

pytest.importorskip("ants")
from voxcast_apps.ants_volume import coarsened, read_volume, volumes_ml


def test_only_the_fine_axes_are_resampled_and_the_volume_stays(tmp_path):
    voxels = np.zeros((40, 40, 16), np.float32)
    voxels[8:32, 8:32, 4:12] = 1.0
    path = tmp_path / "thick.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 5.0, 1.0])), path)
    volume = read_volume(path)
    coarse = coarsened(volume, 4.0)
    assert coarse.shape == (20, 20, 16)
    assert coarse.spacing == pytest.approx((4.0, 4.0, 5.0))
    rounded = coarse.new_image_like(coarse.numpy().round())
    assert volumes_ml(rounded, 2) == pytest.approx(volumes_ml(volume, 2), rel=0.05)


def test_a_file_that_is_not_a_volume_is_refused(tmp_path):
    text, series = tmp_path / "notes.nii.gz", tmp_path / "bold.nii.gz"
    text.write_text("no image")
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4, 3), np.float32), np.eye(4)), series)
    for path, message in (
        (tmp_path / "gone.nii.gz", "no such file"),
        (text, "ANTs cannot read it"),
        (series, "is not one 3-D volume"),
    ):
        with pytest.raises(ImageError, match=message):
            read_volume(path)
