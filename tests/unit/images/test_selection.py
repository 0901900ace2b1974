from pathlib import Path

import pytest

from voxcast.errors import ImageError
from voxcast.images.sources import ImageSelection, refresh, select


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


@pytest.fixture
def bids(tmp_path):
    folder = tmp_path / "bids"
    touch(folder / "dataset_description.json")
    for subject in ("01", "02", "03"):
        touch(folder / f"sub-{subject}/anat/sub-{subject}_T1w.nii.gz")
    touch(folder / "sub-03/anat/sub-03_T2w.nii.gz")
    return folder


def test_a_folder_is_all_of_its_images_or_those_of_some_participants(bids):
    assert select([bids]) == ImageSelection(bids)
    selection = select([bids], ["sub-03", "01", "03"])
    assert selection == ImageSelection(bids, ("03", "01"))
    files = refresh(selection.folder, (), selection.participants)
    assert [Path(file.path).name for file in files] == [
        "sub-01_T1w.nii.gz", "sub-03_T1w.nii.gz", "sub-03_T2w.nii.gz",
    ]  # fmt: skip


def test_files_of_a_dataset_are_its_participants(bids):
    files = [bids / f"sub-{n}/anat/sub-{n}_T1w.nii.gz" for n in ("02", "01")]
    assert select(files) == ImageSelection(bids, ("02", "01"))


def test_files_of_a_plain_folder_are_chosen_by_name(tmp_path):
    touch(tmp_path / "a.nii", tmp_path / "b.nii.gz", tmp_path / "c.nii")
    assert select([tmp_path / "a.nii"]) == ImageSelection(tmp_path, ("a",))
    assert select([tmp_path / "b.nii.gz", tmp_path / "c.nii"]).participants == ("b", "c")


@pytest.mark.parametrize(
    ("names", "labels", "message"),
    [
        (["bids"], ["09"], "no image of participant 09; choose from 01, 02, 03"),
        (["bids/sub-01/anat/sub-01_T1w.nii.gz"], ["02"], "no image of participant 02 is named"),
        (["nowhere"], [], "no such file or folder"),
        (["bids/sub-03/anat/sub-03_T1w.nii.gz"], [], "another image of a subject"),
        (["bids", "a.nii"], [], "not both"),
        (["bids/sub-01/anat/sub-01_T1w.nii.gz", "a.nii"], [], "files of several folders"),
        (["a.txt"], [], "not an image of its folder"),
    ],
)
def test_what_cannot_be_one_image_set_is_refused(bids, tmp_path, names, labels, message):
    touch(tmp_path / "a.nii", tmp_path / "a.txt")
    with pytest.raises(ImageError) as refused:
        select([tmp_path / name for name in names], labels)
    assert message in str(refused.value).replace(f"{bids}: ", "")
