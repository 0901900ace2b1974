"""Lists of files: found, written, read, and changes noticed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from voxcast.errors import ImageError, TableError
from voxcast.images.bids import find_images, write_dataset_files
from voxcast.images.sources import COLUMNS, changed, read_tsv, refresh, scan, write_tsv

if TYPE_CHECKING:
    from pathlib import Path


def _put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_bids_entities_come_from_names(tmp_path: Path) -> None:
    _put(
        tmp_path,
        "sub-01/anat/sub-01_T1w.nii.gz",
        "sub-02/ses-b/anat/sub-02_ses-b_run-1_T2w.nii",
        "sub-02/ses-b/func/sub-02_ses-b_bold.nii.gz",
        "derivatives/tool/sub-01/anat/sub-01_desc-brain_mask.nii.gz",
        "sub-01/anat/sub-01_T1w.json",
    )
    entities = [(e.subject, e.session, e.suffix) for e in find_images(tmp_path)]
    assert entities == [("01", "", "T1w"), ("02", "b", "T2w")]


def test_plain_folder_is_read_at_any_depth_and_links_are_followed(tmp_path: Path) -> None:
    _put(tmp_path, "set/a.nii", "set/deep/er/b.nii.gz", "set/notes.txt", "else/c.nii")
    (tmp_path / "set/linked").symlink_to(tmp_path / "else")
    (tmp_path / "set/loop").symlink_to(tmp_path / "set")
    assert [e.subject for e in find_images(tmp_path / "set")] == ["a", "b", "c"]


def test_same_name_in_two_folders_is_two_subjects(tmp_path: Path) -> None:
    _put(tmp_path, "x/t1.nii", "y/t1.nii")
    assert [e.subject for e in find_images(tmp_path)] == ["x_t1", "y_t1"]


def test_empty_missing_and_file_instead_of_folder(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="empty"):
        scan(tmp_path)
    with pytest.raises(ImageError, match="no such folder"):
        scan(tmp_path / "none")
    _put(tmp_path, "a.nii")
    with pytest.raises(ImageError, match="not a folder"):
        scan(tmp_path / "a.nii")
    (tmp_path / "dataset_description.json").write_text("{}")
    with pytest.raises(ImageError, match="empty: no sub-"):
        scan(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_an_unreadable_folder_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        with pytest.raises(ImageError, match="may not be read"):
            scan(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_list_survives_writing(tmp_path: Path) -> None:
    _put(tmp_path, "set/a.nii", "set/b c.nii")
    files = scan(tmp_path / "set")
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
    scanned = scan(tmp_path)
    (tmp_path / "a.nii").write_text("A.NII")  # same size
    os.utime(tmp_path / "a.nii", ns=(1, 1))
    os.utime(tmp_path / "b.nii", ns=(2, 2))
    a, b, c = refresh(scanned, tmp_path)
    assert a.sha256 != scanned[0].sha256
    assert (b.sha256, b.mtime_ns) == (scanned[1].sha256, 2)
    assert c == scanned[2]
    assert [changed(file) for file in scanned] == [True, False, False]


def test_unchanged_file_is_not_hashed_again(tmp_path: Path) -> None:
    _put(tmp_path, "a.nii")
    marked = [replace(file, sha256="as known") for file in scan(tmp_path)]
    assert refresh(marked, tmp_path) == marked


def test_broken_link_is_listed_without_hash(tmp_path: Path) -> None:
    _put(tmp_path, "a.nii")
    (tmp_path / "b.nii").symlink_to(tmp_path / "gone.nii")
    assert [file.sha256 == "" for file in scan(tmp_path)] == [False, True]


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "images.tsv"
    with pytest.raises(TableError, match="no such file"):
        read_tsv(table)
    table.write_text("path\n")
    with pytest.raises(TableError, match="columns"):
        read_tsv(table)
    table.write_text("\t".join(COLUMNS) + "\n01\t\tT1w\ta.nii\tmany\t0\tff\n")
    with pytest.raises(TableError, match="incomplete"):
        read_tsv(table)
    table.write_text("\t".join(COLUMNS) + "\n01\t\tT1w\ta.nii\n")
    with pytest.raises(TableError, match="incomplete"):
        read_tsv(table)
    _put(tmp_path, "set/a\tb.nii")
    with pytest.raises(ImageError, match="tab"):
        write_tsv(table, scan(tmp_path / "set"))


def test_dataset_files(tmp_path: Path) -> None:
    rows = [{"participant_id": "sub-01", "age": 3}]
    write_dataset_files(tmp_path, "name", {"Name": "x"}, rows, {"age": "Age"})
    assert (tmp_path / "participants.tsv").read_text() == "participant_id\tage\nsub-01\t3\n"
    assert (tmp_path / "dataset_description.json").is_file()
    assert '"Age"' in (tmp_path / "participants.json").read_text()
