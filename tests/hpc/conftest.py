"""A private Slurm, without which tests marked ``slurm`` are skipped; exports of a known site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

import accounting
from private_slurm import PACKAGES, PrivateSlurm, missing_programs
from voxcast.hpc.follower import Follower
from voxcast.hpc.plan import Plan
from voxcast.hpc.slurm_executor import SlurmExecutor
from voxcast.hpc.submission import Submission

N_JOBS = 4000  # of the known site


def _private_slurm(folder: Path, **options: object) -> Iterator[PrivateSlurm]:
    if missing := missing_programs():
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): apt-get install {PACKAGES}")
    with PrivateSlurm(folder, **options) as slurm, pytest.MonkeyPatch.context() as patch:
        for name, value in slurm.environment.items():
            patch.setenv(name, value)
        yield slurm


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    """Three virtual nodes with accounting; Slurm's sampling enforces memory."""
    yield from _private_slurm(tmp_path_factory.mktemp("slurm"), gpus=1)


@pytest.fixture(scope="module")
def cgroup_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    """One virtual node; the kernel enforces memory. No accounting: scontrol must do."""
    yield from _private_slurm(
        tmp_path_factory.mktemp("cgroup"), nodes=1, memory="cgroup", accounting=False
    )


@pytest.fixture
def follower_of(tmp_path: Path) -> Callable[[Plan], Follower]:
    """Return a function that makes the submission of a plan, with outputs in ``tmp_path/out``."""

    def make(plan: Plan) -> Follower:
        submission = Submission.create(plan, tmp_path / "out", "slurm")
        return Follower(submission, SlurmExecutor(submission))

    return make


@pytest.fixture(scope="session")
def truth() -> pd.DataFrame:
    """Jobs of a site whose use and savings are known; see ``benchmarks/accounting.py``."""
    return accounting.truth(N_JOBS)


@pytest.fixture(scope="session")
def export(truth: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the export of ``sacct`` of these jobs."""
    path = tmp_path_factory.mktemp("site") / "jobs.txt"
    path.write_text("".join(f"{line}\n" for line in accounting.lines(truth)))
    return path


@pytest.fixture(scope="session")
def few_columns(truth: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the export of a site that writes few columns."""
    path = tmp_path_factory.mktemp("site") / "few.txt"
    rows = accounting.lines(truth[:500], columns=accounting.FEW_COLUMNS)
    path.write_text("".join(f"{line}\n" for line in rows))
    return path
