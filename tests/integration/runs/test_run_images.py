"""Imported runs with their images: matched by label, and usable for training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training_project import Project, write_volume
from voxcast.cli import main
from voxcast.images.volume import Volume
from voxcast.runs.importer import RunImages
from voxcast.runs.store import load_history, load_phases

HEADER = "JobID|JobName|State|ElapsedRaw|TotalCPU|MaxRSS|AllocCPUS|NodeList|Start"


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


def sacct(path: Path, *names: str) -> Path:
    """Write Slurm's accounting of a job for each name, with the job's step."""
    lines = [HEADER]
    for number, name in enumerate(names, start=1):
        job = f"{name}|COMPLETED|{60 + number}|00:01:{number:02d}|"
        lines.append(f"{number}|{job}|2|n1|2024-05-01T10:00:{number:02d}")
        lines.append(f"{number}.batch|{job.replace(name, 'batch')}1{number}00M|2|n1|")
    path.write_text("\n".join(lines) + "\n")
    return path


def row(subject: str, **labels: str) -> dict[str, str]:
    return {"subject": subject, "labels_json": json.dumps(labels), "volume_id": ""}


def voxcast(*arguments: object, code: int = 0) -> None:
    assert main([str(argument) for argument in arguments]) == code


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


def test_an_import_with_images_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path / "project")
    project.measure("here", range(20, 22), outcome="failed")  # nothing usable was measured here
    names = [f"recon_sub-{number:02d}" for number in range(1, 9)]
    accounting = sacct(tmp_path / "jobs.txt", *names, "recon_sub-77")
    images = bids(tmp_path / "bids", *(f"{number:02d}" for number in range(1, 9)))
    monkeypatch.chdir(project.folder)
    (project.folder / "params.yaml").write_text(project.params())
    options = ("--app", "app", "--pattern", "sub-(?P<subject>[0-9]+)")
    voxcast("history", "import", "sacct", accounting, "--images", images, *options)
    lines = capsys.readouterr().out.splitlines()
    assert "of 9 imported runs 8 have an image" in lines
    assert "no image 1 × no image of subject 77" in lines
    batch = project.folder / "data/history/imported"
    runs = load_history([batch])
    assert (runs["volume_id"] != "").sum() == 8
    project.featurize(history=["imported"])
    rows, summary = project.rows(), project.summary()
    assert len(rows) == 8
    assert set(rows["image_set"]) == {"imported"}
    assert not rows.filter(like="content.").isna().any(axis=None)
    assert rows["content.log_foreground_voxels"].nunique() > 1
    assert summary["of_recorded_batches"] == {"imported": 8}
    assert summary["apps"]["app"]["left_out"] == {
        "censored: failed": 4, "imported without an image": 1
    }  # fmt: skip
    assert load_phases([batch]).empty
