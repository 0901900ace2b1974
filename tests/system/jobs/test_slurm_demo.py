"""The demonstration on a private Slurm: its summary, and its end without Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[3] / "benchmarks" / "slurm_demo.py"


@pytest.mark.slow
@pytest.mark.slurm
def test_a_few_images_go_through_to_the_picture(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(DEMO), "--images", "3", "--out", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "3 of 3 images done" in ended.stdout
    assert "attempts  3; failed: none" in ended.stdout
    assert "completed" in (tmp_path / "asked_used.svg").read_text()
    assert len(list((tmp_path / "results").glob("sub-*"))) == 3
