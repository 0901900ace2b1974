"""A private Slurm whose memory the kernel enforces, and the follower of a plan."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from private_slurm import PACKAGES, PrivateSlurm, missing_programs
from voxcast.jobs.follow import Follower
from voxcast.jobs.slurm import SlurmExecutor
from voxcast.jobs.submission import Plan, Submission


@pytest.fixture
def cgroup_slurm(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PrivateSlurm]:
    """One virtual node; the kernel enforces memory. No accounting: scontrol must do."""
    if missing := missing_programs():
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): apt-get install {PACKAGES}")
    folder = tmp_path_factory.mktemp("cgroup")
    with PrivateSlurm(folder, nodes=1, memory="cgroup", accounting=False) as slurm:
        for name, value in slurm.environment.items():
            monkeypatch.setenv(name, value)
        yield slurm


@pytest.fixture
def follower_of(tmp_path: Path) -> Callable[[Plan], Follower]:
    """Return a function that makes the submission of a plan, with outputs in ``tmp_path/out``."""

    def make(plan: Plan) -> Follower:
        submission = Submission.create(plan, tmp_path / "out", "slurm")
        return Follower(submission, SlurmExecutor(submission))

    return make
