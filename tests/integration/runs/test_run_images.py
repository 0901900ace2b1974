"""Imported runs with their images: matched by label, and usable for training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from training_project import ROOT, Project, write_volume
from voxcast.cli import main
from voxcast.errors import ImageError, TableError
from voxcast.images.catalogue import build_catalogue
from voxcast.images.characteristics import characteristics
from voxcast.images.sources import refresh
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


def test_a_plain_folder_has_subjects_by_name_or_by_label(tmp_path: Path) -> None:
    for seed, name in enumerate(("head_7", "sub-01_ses-2_T1w", "sub-01_ses-3_T1w")):
        write_volume(tmp_path / f"{name}.nii.gz", seed)
    rows = [row("head_7"), row("01", session="2"), row("01_x")]
    assert RunImages(tmp_path, 32).match(rows) == {"no image of subject 01_x": 1}
    assert [values["subject"] for values in rows[:2]] == ["head_7", "01"]
    with pytest.raises(ImageError, match="no such folder"):
        RunImages(tmp_path / "nowhere", 32)


def test_headers_and_characteristics_are_written_beside_the_parts(tmp_path: Path) -> None:
    folder = bids(tmp_path / "bids", "01", "02")
    images = RunImages(folder, 32)
    images.match([row("01")])
    images.add_to(tmp_path)
    (only,) = pd.read_parquet(tmp_path / "images.parquet").to_dict("records")
    path = folder / "sub-01/anat/sub-01_T1w.nii.gz"
    volume = Volume.open(path).read(32)
    expected = {
        **Volume.open(path).header.columns(),
        **characteristics(volume),
    }
    assert {name: only[name] for name in expected} == pytest.approx(expected)
    images = RunImages(folder, 32)
    images.match([row("02")])
    images.add_to(tmp_path)  # a second import adds to the first
    assert list(pd.read_parquet(tmp_path / "images.parquet")["subject"]) == ["01", "02"]
    (tmp_path / "images.parquet").write_bytes(b"no table")
    with pytest.raises(TableError, match="cannot be read"):
        images.add_to(tmp_path)


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


def test_imported_runs_take_the_place_of_measured_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path / "project")
    images = bids(tmp_path / "bids", "01", "02", "03")
    batch = project.folder / "data/history/jobs"
    accounting = sacct(tmp_path / "jobs.txt", *(f"sub-0{n}" for n in range(1, 4)))
    project.folder.mkdir()
    params = yaml.safe_load(project.params())
    params["campaign"]["history"] = ["data/history/jobs"]
    (project.folder / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(project.folder)
    options = ("--app", "app", "--pattern", "sub-(?P<subject>[0-9]+)", "--images", images)
    voxcast("history", "import", "sacct", accounting, "--into", batch, *options)
    build_catalogue(refresh(images), Path("data/catalogue"), 32, 8, image_set="jobs")
    for device in ("cpu", "gpu"):
        subprocess.run(
            [sys.executable, str(ROOT / "pipelines/profile_runs.py"), device],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True,
        )  # fmt: skip
    (project.folder / "params.yaml").unlink()
    project.featurize()
    assert sorted(project.rows()["subject"]) == ["01", "02", "03"]
    assert project.summary()["of_present_image_set"] == 3


def test_runs_imported_before_without_images_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = bids(tmp_path / "bids", "01", "02")
    accounting = sacct(tmp_path / "jobs.txt", "recon_sub-01", "recon_sub-02")
    options = ("--into", tmp_path / "h", "--pattern", "sub-(?P<subject>[0-9]+)")
    voxcast("history", "import", "sacct", accounting, *options)
    capsys.readouterr()
    voxcast("history", "import", "sacct", accounting, *options, "--images", images)
    assert "2 duplicates stay as they are on record" in capsys.readouterr().out
    assert not (tmp_path / "h/images.parquet").exists()
    voxcast(
        "history", "import", "sacct", accounting, *options, "--images", tmp_path / "no", code=2
    )
    assert "no such folder" in capsys.readouterr().err
