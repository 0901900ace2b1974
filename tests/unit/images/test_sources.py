"""Lists of files: found, written, read, and changes noticed."""

import os
from pathlib import Path

import pytest

from voxcast.errors import ImageError, TableError
from voxcast.images.sources import (
    COLUMNS,
    ImageSelection,
    changed,
    find_images,
    read_tsv,
    refresh,
    select,
    write_tsv,
)


def _put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))


@pytest.mark.parametrize(
    ("names", "entities"),
    [
        (
            ["sub-01/anat/sub-01_T1w.nii.gz", "sub-02/ses-b/anat/sub-02_ses-b_run-1_T2w.nii",
             "sub-02/ses-b/func/sub-02_ses-b_bold.nii.gz", "sub-01/anat/sub-01_T1w.json",
             "derivatives/tool/sub-01/anat/sub-01_desc-brain_mask.nii.gz"],
            [("01", "", "T1w"), ("02", "b", "T2w")],
        ),
        # A name in two folders is two subjects.
        (["x/t1.nii", "y/t1.nii"], [("x_t1", "", ""), ("y_t1", "", "")]),
        (
            ["sub-01_ses-1_T1w.nii", "sub-01_ses-2_T1w.nii.gz", "study_sub-02.nii", "c.nii"],
            [("c", "", ""), ("02", "", ""), ("01", "1", "T1w"), ("01", "2", "T1w")],
        ),
    ],
    ids=["BIDS", "folders", "names"],
)  # fmt: skip
def test_entities_come_from_names(
    tmp_path: Path, names: list[str], entities: list[tuple[str, str, str]]
) -> None:
    _put(tmp_path, *names)
    assert [(e.subject, e.session, e.suffix) for e in find_images(tmp_path)] == entities


def test_plain_folder_is_read_at_any_depth_and_links_are_followed(tmp_path: Path) -> None:
    _put(tmp_path, "set/a.nii", "set/deep/er/b.nii.gz", "set/notes.txt", "else/c.nii")
    (tmp_path / "set/linked").symlink_to(tmp_path / "else")
    (tmp_path / "set/loop").symlink_to(tmp_path / "set")
    assert [e.subject for e in find_images(tmp_path / "set")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [(".", "empty: no .nii"), ("none", "no such folder"), ("bids", "empty: no sub-"),
     ("bids/dataset_description.json", "not a folder")],
)  # fmt: skip
def test_empty_missing_and_file_instead_of_folder(tmp_path: Path, name: str, reason: str) -> None:
    _put(tmp_path, "bids/dataset_description.json")
    with pytest.raises(ImageError, match=reason):
        refresh(tmp_path / name)


def test_an_unreadable_image_set_is_reported(unprivileged_folder: Path) -> None:
    unprivileged_folder.chmod(0)
    try:
        with pytest.raises(ImageError, match="may not be read"):
            refresh(unprivileged_folder)
    finally:
        unprivileged_folder.chmod(0o700)


def test_an_unreadable_file_is_noticed_when_it_is_mended(unprivileged_folder: Path) -> None:
    _put(unprivileged_folder, "a.nii", "b.nii")
    (unprivileged_folder / "b.nii").chmod(0)
    locked = refresh(unprivileged_folder)
    assert [file.sha256 == "" for file in locked] == [False, True]
    (unprivileged_folder / "b.nii").chmod(0o600)
    mended = refresh(unprivileged_folder, locked)
    assert mended[0] == locked[0]
    assert mended[1].sha256


def test_names_that_no_table_can_hold_are_listed_and_the_others_go_on(tmp_path: Path) -> None:
    names = ("a\tb.nii", "c\nd.nii", "e\rf.nii", os.fsdecode(b"g\xff.nii"))
    _put(tmp_path / "set", "fine\u00a0é.nii", *names)
    table = tmp_path / "images.tsv"
    files = refresh(tmp_path / "set")
    write_tsv(table, files)
    assert read_tsv(table) == files
    assert len(table.read_text(encoding="utf-8").splitlines()) == 6
    problems = {file.path.removeprefix(f"{tmp_path}/set/"): file.problem for file in files}
    assert problems.pop("fine\u00a0é.nii") == ""
    assert sorted(problems) == ["a\\tb.nii", "c\\nd.nii", "e\\rf.nii", "g\\udcff.nii"]
    assert all("rename it" in problem for problem in problems.values())
    for name in names:
        (tmp_path / "set" / name).rename(tmp_path / "set" / f"{ord(name[1])}.nii")
    assert all(file.sha256 and not file.problem for file in refresh(tmp_path / "set", files))


def test_list_survives_writing(tmp_path: Path) -> None:
    _put(tmp_path, "set/a.nii", "set/b c.nii")
    files = refresh(tmp_path / "set")
    table = tmp_path / "images.tsv"
    write_tsv(table, files)
    assert read_tsv(table) == files
    before = table.stat().st_mtime_ns
    write_tsv(table, files)
    assert table.stat().st_mtime_ns == before
    write_tsv(table, [])
    assert table.read_text() == "\t".join(COLUMNS) + "\n"


def test_a_changed_file_is_detected_and_a_touched_one_keeps_its_hash(tmp_path: Path) -> None:
    _put(tmp_path, "a.nii", "b.nii", "c.nii")
    scanned = refresh(tmp_path)
    (tmp_path / "a.nii").write_text("A.NII")  # same size
    os.utime(tmp_path / "a.nii", ns=(1, 1))
    os.utime(tmp_path / "b.nii", ns=(2, 2))
    a, b, c = refresh(tmp_path, scanned)
    assert a.sha256 != scanned[0].sha256
    assert (b.sha256, b.mtime_ns) == (scanned[1].sha256, 2)
    assert c == scanned[2]
    assert [changed(file) for file in scanned] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "no such file"), ("path\n", "columns"),
     ("\t".join(COLUMNS) + "\n01\t\tT1w\ta.nii\tmany\t0\tff\n", "incomplete"),
     ("\t".join(COLUMNS) + "\n01\t\tT1w\ta.nii\n", "incomplete")],
)  # fmt: skip
def test_bad_tables_are_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    table = tmp_path / "images.tsv"
    if text is not None:
        table.write_text(text)
    with pytest.raises(TableError, match=reason):
        read_tsv(table)


@pytest.fixture
def bids(tmp_path):
    folder = tmp_path / "bids"
    images = [f"sub-{n}/anat/sub-{n}_T1w.nii.gz" for n in ("01", "02", "03")]
    _put(folder, "dataset_description.json", *images, "sub-03/anat/sub-03_T2w.nii.gz")
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
    _put(tmp_path, "a.nii", "b.nii.gz", "c.nii")
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
    _put(tmp_path, "a.nii", "a.txt")
    with pytest.raises(ImageError) as refused:
        select([tmp_path / name for name in names], labels)
    assert message in str(refused.value).replace(f"{bids}: ", "")
