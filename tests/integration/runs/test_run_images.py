"""Imported runs with their images: matched by label, and usable for training."""

from __future__ import annotations

import json
from pathlib import Path

from training_project import write_volume
from voxcast.images.volume import Volume
from voxcast.runs.importer import RunImages


def bids(folder: Path, *names: str) -> Path:
    """Write a volume for each ``SUBJECT`` or ``SUBJECT/SESSION``."""
    for seed, name in enumerate(names):
        subject, _, session = name.partition("/")
        stem = "_".join(
            f"{key}-{label}" for key, label in (("sub", subject), ("ses", session)) if label
        )
        parts = [f"sub-{subject}", *([f"ses-{session}"] if session else []), "anat"]
        write_volume(folder.joinpath(*parts) / f"{stem}_T1w.nii.gz", seed)
    return folder


def row(subject: str, **labels: str) -> dict[str, str]:
    return {"subject": subject, "labels_json": json.dumps(labels), "volume_id": ""}


def test_runs_get_the_image_of_their_subject_and_session(tmp_path: Path) -> None:
    folder = bids(tmp_path / "bids", "01", "02/a", "02/b")
    rows = [row("01"), row("sub-01"), row("02", session="ses-b"), row("sub-02_ses-a")]
    assert RunImages(folder, 32).match(rows) == {}
    expected = [
        folder / "sub-01/anat/sub-01_T1w.nii.gz",
        folder / "sub-01/anat/sub-01_T1w.nii.gz",
        folder / "sub-02/ses-b/anat/sub-02_ses-b_T1w.nii.gz",
        folder / "sub-02/ses-a/anat/sub-02_ses-a_T1w.nii.gz",
    ]
    ids = [Volume.open(path).read(32).voxel_sha256[:16] for path in expected]
    assert [values["volume_id"] for values in rows] == ids
    assert [values["subject"] for values in rows] == ["01", "01", "02", "02"]


def test_runs_without_one_image_are_counted_by_reason(tmp_path: Path) -> None:
    folder = bids(tmp_path / "bids", "01", "02/a", "02/b", "03")
    (folder / "sub-03/anat/sub-03_T1w.nii.gz").write_bytes(b"no image")
    rows = [row("01"), row(""), row("07"), row("07"), row("02"), row("02", session="c"), row("03")]
    reasons = RunImages(folder, 32).match(rows)
    path = folder / "sub-03/anat/sub-03_T1w.nii.gz"
    assert {reason.partition(str(path))[1] or reason: n for reason, n in reasons.items()} == {
        "the run states no subject": 1,
        "no image of subject 07": 2,
        "2 images of subject 02: sub-02_ses-a_T1w.nii.gz, sub-02_ses-b_T1w.nii.gz; "
        "give a folder with one of them": 1,
        "no image of subject 02, session c": 1,
        str(path): 1,
    }
    assert [bool(values["volume_id"]) for values in rows] == [True, *[False] * 6]
