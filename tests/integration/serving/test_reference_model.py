"""Without a project the reference model of the package answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import voxcast
from commands import attempt
from small_head import write_head
from voxcast.serving.prediction_service import REFERENCE

REFERENCE_BYTES = 5_000_000
ELSEWHERE = ("--machine", "elsewhere")  # this may be the machine of the recorded campaigns


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder without a project; that of the user is empty too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VOXCAST_PROJECT", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    write_head(tmp_path / "scan.nii.gz", spacing_mm=2.5, edge=80)
    return tmp_path


def voxcast_verb(away: Path, *words: str, code: int = 0) -> tuple[str, str]:
    ended = attempt(*words, cwd=away, XDG_DATA_HOME=str(away / "user"))
    assert ended.returncode == code, ended.stderr
    return ended.stdout, ended.stderr


def test_it_is_small_and_has_no_code() -> None:
    files = [path for path in REFERENCE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < REFERENCE_BYTES
    assert {path.suffix for path in files} <= {".json", ".npz", ".md"}


def test_an_image_is_answered_and_said_to_be_uncalibrated(away: Path) -> None:
    out, err = voxcast_verb(
        away, "predict", "scan.nii.gz", "--app", "ants_segment", *ELSEWHERE, "--json"
    )
    predictions = json.loads(out)[0]["predictions"]
    assert [prediction["cpus"] for prediction in predictions] == [1, 2]
    assert not any(prediction["calibrated"] for prediction in predictions)
    assert "no project here: the reference model of the package answers" in err
    text, _ = voxcast_verb(away, "predict", "scan.nii.gz", "--app", "ants_segment", *ELSEWHERE)
    assert "not calibrated: the speed of" in text
    assert "voxcast measure --host" in text
    table = voxcast.load().predict("scan.nii.gz", app="ants_segment")
    assert table["peak_rss_bytes_median"].tolist() == pytest.approx(
        [prediction["peak_rss_bytes_median"] for prediction in predictions]
    )


def test_another_application_is_refused_in_one_line(away: Path) -> None:
    _, err = voxcast_verb(away, "predict", "scan.nii.gz", "--app", "moon", code=2)
    assert err.splitlines()[-1].startswith("voxcast: moon: is not in the reference model; make a")


def test_this_machine_is_known_in_a_folder_of_the_user(away: Path) -> None:
    out, err = voxcast_verb(away, "measure", "--host", "--time-budget", "0s")
    assert "no project here: the reference model is measured, in" in err
    assert "ants_segment" in out
    assert (away / "user" / "voxcast" / "models" / "champion.json").is_file()
    again, _ = voxcast_verb(away, "predict", "scan.nii.gz", "--app", "ants_segment")
    assert "for machine" in again
