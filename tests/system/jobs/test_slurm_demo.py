"""The demonstration on a private Slurm: its summary, and its end without Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from private_slurm import PACKAGES
from slurm_demo import summary_lines

DEMO = Path(__file__).parents[3] / "benchmarks" / "slurm_demo.py"
GB = 10**9


def attempt(outcome: str, runtime_s: float, memory_bytes: float, peak_bytes: float | None) -> dict:
    request = {"walltime_s": 60.0, "memory_bytes": memory_bytes, "cpus": 1, "gpus": 0}
    return {
        "outcome": outcome, "runtime_s": runtime_s, "request": request, "peak_bytes": peak_bytes,
    }  # fmt: skip


def test_the_summary_counts_every_attempt_and_names_the_causes() -> None:
    rows = [
        {"attempts": [attempt("out_of_memory", 9.0, GB, GB), attempt("completed", 18.0, 2 * GB,
                                                                     GB)]},
        {"attempts": [attempt("completed", 9.0, GB, None)]},
    ]  # fmt: skip
    submitted = {"rows": rows, "by_status": {"completed": 2}}
    assert summary_lines(submitted, 90.0, 2, (3600.0, 4 * GB)) == [
        "2 of 2 images done in 1.5 min on 2 CPUs of 2 virtual nodes",
        "  attempts  3; failed: 1 out of memory",
        "  time      asked 0.05 core-hours, used 0.01; a default of 1 h each asks 2",
        "  memory    asked 0.013 GB-hours, used 0.007; a default of 4 GB each holds 0.030",
    ]


def test_without_slurm_one_line_says_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    code = (
        "import private_slurm, sys; private_slurm.SBIN = '/nowhere'; "
        "import slurm_demo; sys.argv = ['slurm_demo']; sys.exit(slurm_demo.main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=DEMO.parent, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.endswith(f"apt-get install -y --no-install-recommends {PACKAGES}")


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
